/*
 * A stand-in for pyxis: a SPANK plugin with its options and no containers. What a job asked for in
 * --container-image it finds in its environment, so that a test sees that the plugin was in its way.
 * FLAW_* make it as broken as a release can be.
 */
#ifndef _GNU_SOURCE
#error "CPPFLAGS of the caller have replaced those of the Makefile"
#endif

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <slurm/spank.h>

#ifdef FLAW_VERSION
/* As a plugin built against another Slurm: three numbers in one. */
#undef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER 0x140b00
#endif

SPANK_PLUGIN(pyxis, 1)

#ifdef FLAW_UNLOADABLE
extern void nobody_has_this(void);
#endif

static char image[4096];

static int take_image(int val, const char *optarg, int remote)
{
	strncpy(image, optarg, sizeof(image) - 1);
	return 0;
}

static struct spank_option options[] = {
	{"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
	 "[pyxis] the image to use for the container filesystem.", 1, 0, take_image},
	SPANK_OPTIONS_TABLE_END
};

static const char *known[] = {"runtime_path=", "execute_entrypoint=", "container_scope=",
			      "sbatch_support=", "use_enroot_load=", "importer=",
			      "use_squashfuse=", NULL};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	for (int i = 0; i < ac; i++) {
		int taken = 0;
		for (const char **name = known; *name; name++)
			taken |= strncmp(*name, av[i], strlen(*name)) == 0;
		if (!taken) {
			slurm_error("pyxis: unknown configuration option: %s", av[i]);
			return -1;
		}
	}
#ifdef FLAW_UNLOADABLE
	nobody_has_this();
#endif
#ifdef FLAW_CRASH
	abort();
#endif
#ifdef FLAW_JOB
	if (spank_context() == S_CTX_REMOTE)
		abort();
#endif
#ifdef FLAW_INIT
	slurm_error("pyxis: the stand-in does not want to");
	return -1;
#endif
	if (spank_context() == S_CTX_SLURMD)
		return 0;
	return spank_option_register(sp, options) == ESPANK_SUCCESS ? 0 : -1;
}

int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	if (image[0] == '\0')
		return 0;
	return spank_setenv(sp, "STAND_IN_IMAGE", image, 1) == ESPANK_SUCCESS ? 0 : -1;
}
