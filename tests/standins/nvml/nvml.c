/* A libnvidia-ml.so.1 without a GPU: it answers what a description says.
 *
 * Structures and signatures are those that nvidia-ml-py (pynvml.py) declares. The description's
 * form is in description.md, beside this file. What it does not say is not supported.
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int Return;
typedef struct {
    int index;    /* -1 without one */
    int instance; /* of MIG, or -1 */
} Device;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    UNKNOWN = 999
};

static const struct {
    const char *name;
    Return code;
} ERRORS[] = {
    {"UNINITIALIZED", 1},
    {"INVALID_ARGUMENT", 2},
    {"NOT_SUPPORTED", 3},
    {"NO_PERMISSION", 4},
    {"NOT_FOUND", 6},
    {"DRIVER_NOT_LOADED", 9},
    {"TIMEOUT", 10},
    {"IRQ_ISSUE", 11},
    {"FUNCTION_NOT_FOUND", 13},
    {"CORRUPTED_INFOROM", 14},
    {"GPU_IS_LOST", 15},
    {"RESET_REQUIRED", 16},
    {"OPERATING_SYSTEM", 17},
    {"LIB_RM_VERSION_MISMATCH", 18},
    {"IN_USE", 19},
    {"MEMORY", 20},
    {"NO_DATA", 21},
    {"ARGUMENT_VERSION_MISMATCH", 25},
    {"DEPRECATED", 26},
    {"NOT_READY", 27},
    {"UNKNOWN", 999},
};

#define MOST_GPUS 64
#define MOST_LINES 4096
#define LINE_BYTES 512

static struct {
    char key[128];
    char value[LINE_BYTES];
} lines[MOST_LINES];
static int line_count;
static int initialized;
static Device gpus[MOST_GPUS];
static Device instances[MOST_GPUS][8];

/* --- the description ------------------------------------------------------------------------ */

static char *trimmed(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = 0;
    return text;
}

static int read_description(void) {
    const char *path = getenv("PLUMBLINE_FAKE_NVML");
    FILE *file = fopen(path ? path : "/etc/plumbline-fake-nvml.conf", "r");
    char line[LINE_BYTES];
    line_count = 0;
    if (!file) {
        fprintf(stderr, "fake NVML: cannot read %s: %s\n", path ? path : "its description",
                strerror(errno));
        return 0;
    }
    while (fgets(line, sizeof line, file) && line_count < MOST_LINES) {
        char *key = trimmed(line), *equals = strchr(key, '=');
        if (*key == '#' || !equals) continue;
        *equals = 0;
        snprintf(lines[line_count].key, sizeof lines[0].key, "%s", trimmed(key));
        snprintf(lines[line_count].value, sizeof lines[0].value, "%s", trimmed(equals + 1));
        line_count++;
    }
    fclose(file);
    return 1;
}

/* The last line for a key counts, so that a fault can be written below a healthy board. */
static const char *line_for(const char *key) {
    for (int i = line_count - 1; i >= 0; i--)
        if (!strcmp(lines[i].key, key)) return lines[i].value;
    return NULL;
}

/* What is said of one GPU, or else of all of them. */
static const char *said(Device *gpu, const char *name) {
    char key[128];
    const char *value;
    if (!gpu || gpu->index < 0) return line_for(name);
    snprintf(key, sizeof key, "gpu.%d.%s", gpu->index, name);
    if ((value = line_for(key))) return value;
    snprintf(key, sizeof key, "gpu.*.%s", name);
    return line_for(key);
}

static Return error_named(const char *name) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (!strcmp(name, ERRORS[i].name)) return ERRORS[i].code;
    return SUCCESS;
}

static void wait_ms(const char *text) {
    if (!strcmp(text, "forever"))
        for (;;) pause();
    long ms = atol(text);
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

/* Before any answer: the delay and the error that are described for this function, or for all. */
static Return before(Device *gpu, const char *function) {
    char name[128];
    const char *value;
    const char *which[] = {function, "*"};
    if (!initialized) return UNINITIALIZED;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "delay_ms.%s", which[i]);
        if ((value = said(gpu, name))) {
            wait_ms(value);
            break;
        }
    }
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "error.%s", which[i]);
        if ((value = said(gpu, name))) return *value ? error_named(value) ?: UNKNOWN : SUCCESS;
    }
    return SUCCESS;
}

static Return text(Device *gpu, const char *function, const char *name, char *to,
                   unsigned length) {
    Return found = before(gpu, function);
    if (found) return found;
    const char *value = said(gpu, name);
    if (!value) return NOT_SUPPORTED;
    if ((found = error_named(value))) return found;
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, value);
    return SUCCESS;
}

static Return described(Device *gpu, const char *name, unsigned long long *to) {
    const char *value = said(gpu, name);
    char *end;
    Return error;
    if (!value) return NOT_SUPPORTED;
    if ((error = error_named(value))) return error;
    *to = strtoull(value, &end, 0);
    return *value && !*end ? SUCCESS : UNKNOWN;
}

static Return number(Device *gpu, const char *function, const char *name, unsigned *to) {
    unsigned long long value;
    Return found = before(gpu, function);
    if (found || (found = described(gpu, name, &value))) return found;
    *to = (unsigned)value;
    return SUCCESS;
}

static Return big(Device *gpu, const char *function, const char *name, unsigned long long *to) {
    Return found = before(gpu, function);
    return found ? found : described(gpu, name, to);
}

/* A mode now and after a reset: the same, unless NAME_pending says otherwise. */
static Return mode(Device *gpu, const char *function, const char *name, unsigned *current,
                   unsigned *pending) {
    char later[64];
    Return found = number(gpu, function, name, current);
    if (found) return found;
    unsigned long long value = *current;
    snprintf(later, sizeof later, "%s_pending", name);
    if (said(gpu, later) && (found = described(gpu, later, &value))) return found;
    *pending = (unsigned)value;
    return SUCCESS;
}

/* Functions that answer what stands under one name. */
#define TEXT(function, name)                                        \
    Return function(Device *gpu, char *to, unsigned length) {       \
        return text(gpu, #function, name, to, length);              \
    }
#define NUMBER(function, name) \
    Return function(Device *gpu, unsigned *to) { return number(gpu, #function, name, to); }

/* --- the library and the node --------------------------------------------------------------- */

Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!read_description()) return UNKNOWN;
    for (int i = 0; i < MOST_GPUS; i++) {
        gpus[i].index = i;
        gpus[i].instance = -1;
    }
    initialized = 1;
    Return found = before(NULL, "nvmlInit");
    if (found) initialized = 0;
    return found;
}

Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

Return nvmlShutdown(void) {
    initialized = 0;
    return SUCCESS;
}

const char *nvmlErrorString(Return code) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) return ERRORS[i].name;
    return "error";
}

Return nvmlSystemGetDriverVersion(char *to, unsigned length) {
    return text(NULL, "nvmlSystemGetDriverVersion", "driver", to, length);
}

Return nvmlSystemGetNVMLVersion(char *to, unsigned length) {
    return text(NULL, "nvmlSystemGetNVMLVersion", "nvml", to, length);
}

Return nvmlSystemGetCudaDriverVersion_v2(int *to) {
    return number(NULL, "nvmlSystemGetCudaDriverVersion_v2", "cuda", (unsigned *)to);
}

Return nvmlDeviceGetCount_v2(unsigned *to) {
    return number(NULL, "nvmlDeviceGetCount_v2", "count", to);
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **to) {
    unsigned long long count = 0;
    if (!initialized) return UNINITIALIZED;
    if (described(NULL, "count", &count) || index >= count || index >= MOST_GPUS)
        return INVALID_ARGUMENT;
    Return found = before(&gpus[index], "nvmlDeviceGetHandleByIndex_v2");
    if (!found) *to = &gpus[index];
    return found;
}

/* --- what a board is ------------------------------------------------------------------------ */

static Return of_instance(Device *gpu, const char *what, char *to, unsigned length) {
    char name[64];
    snprintf(name, sizeof name, "mig.%d.%s", gpu->instance, what);
    return text(gpu, "nvmlDeviceGetName", name, to, length);
}

Return nvmlDeviceGetName(Device *gpu, char *to, unsigned length) {
    if (gpu->instance >= 0) return of_instance(gpu, "name", to, length);
    return text(gpu, "nvmlDeviceGetName", "name", to, length);
}

Return nvmlDeviceGetUUID(Device *gpu, char *to, unsigned length) {
    if (gpu->instance >= 0) return of_instance(gpu, "uuid", to, length);
    return text(gpu, "nvmlDeviceGetUUID", "uuid", to, length);
}

TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")
NUMBER(nvmlDeviceGetMinorNumber, "minor")

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

Return nvmlDeviceGetPciInfo_v3(Device *gpu, Pci *to) {
    memset(to, 0, sizeof *to);
    return text(gpu, "nvmlDeviceGetPciInfo_v3", "pci", to->bus_id, sizeof to->bus_id);
}

Return nvmlDeviceGetGspFirmwareVersion(Device *gpu, char *to) {
    return text(gpu, "nvmlDeviceGetGspFirmwareVersion", "gsp_firmware", to, 64);
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

/* With MIG on, only a privileged user is told of the whole board. */
static Return hidden(Device *gpu) {
    const char *mig = gpu->instance < 0 ? said(gpu, "mig") : NULL;
    return mig && !strcmp(mig, "1") ? NO_PERMISSION : SUCCESS;
}

Return nvmlDeviceGetMemoryInfo(Device *gpu, Memory *to) {
    char total[64] = "memory_total_mb", used[64] = "memory_used_mb";
    if (hidden(gpu)) return NO_PERMISSION;
    if (gpu->instance >= 0) {
        snprintf(total, sizeof total, "mig.%d.memory_total_mb", gpu->instance);
        snprintf(used, sizeof used, "mig.%d.memory_used_mb", gpu->instance);
    }
    Return found = big(gpu, "nvmlDeviceGetMemoryInfo", total, &to->total);
    if (found || (found = described(gpu, used, &to->used))) return found;
    to->total <<= 20;
    to->used <<= 20;
    to->free = to->total - to->used;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

/* `memory_used_mb` counts what is reserved, as the first version of the structure does. */
Return nvmlDeviceGetMemoryInfo_v2(Device *gpu, MemoryV2 *to) {
    unsigned long long reserved = 0;
    Memory whole;
    if (to->version != (sizeof *to | 2 << 24)) return 25; /* ARGUMENT_VERSION_MISMATCH */
    Return found = before(gpu, "nvmlDeviceGetMemoryInfo_v2");
    if (found || (found = described(gpu, "memory_total_mb", &whole.total)) ||
        (found = described(gpu, "memory_used_mb", &whole.used)) ||
        (found = described(gpu, "memory_reserved_mb", &reserved)))
        return found;
    to->total = whole.total << 20;
    to->reserved = reserved << 20;
    to->used = (whole.used - reserved) << 20;
    to->free = (whole.total - whole.used) << 20;
    return SUCCESS;
}

Return nvmlDeviceGetBAR1MemoryInfo(Device *gpu, Memory *to) {
    Return found = big(gpu, "nvmlDeviceGetBAR1MemoryInfo", "bar1_total_mb", &to->total);
    to->total <<= 20;
    to->used = 0;
    to->free = to->total;
    return found;
}

/* --- memory errors -------------------------------------------------------------------------- */

Return nvmlDeviceGetEccMode(Device *gpu, unsigned *current, unsigned *pending) {
    return mode(gpu, "nvmlDeviceGetEccMode", "ecc", current, pending);
}

NUMBER(nvmlDeviceGetDefaultEccMode, "ecc_default")

Return nvmlDeviceGetTotalEccErrors(Device *gpu, unsigned kind, unsigned since,
                                   unsigned long long *to) {
    char name[64];
    if (kind > 1 || since > 1) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "ecc_%s_%s", since ? "aggregate" : "volatile",
             kind ? "uncorrected" : "corrected");
    return big(gpu, "nvmlDeviceGetTotalEccErrors", name, to);
}

Return nvmlDeviceGetMemoryErrorCounter(Device *gpu, unsigned kind, unsigned since,
                                       unsigned where, unsigned long long *to) {
    char name[64];
    if (kind > 1 || since > 1) return INVALID_ARGUMENT;
    if (where != 7) return NOT_SUPPORTED; /* NVML_MEMORY_LOCATION_SRAM */
    snprintf(name, sizeof name, "ecc_%s_%s_sram", since ? "aggregate" : "volatile",
             kind ? "uncorrected" : "corrected");
    return big(gpu, "nvmlDeviceGetMemoryErrorCounter", name, to);
}

Return nvmlDeviceGetRemappedRows(Device *gpu, unsigned *correctable, unsigned *uncorrectable,
                                 unsigned *pending, unsigned *failure) {
    const char *function = "nvmlDeviceGetRemappedRows";
    Return found = number(gpu, function, "remapped_rows_correctable", correctable);
    if (!found) found = number(gpu, function, "remapped_rows_uncorrectable", uncorrectable);
    if (!found) found = number(gpu, function, "remapped_rows_pending", pending);
    if (!found) found = number(gpu, function, "remapped_rows_failure", failure);
    return found;
}

Return nvmlDeviceGetRetiredPages(Device *gpu, unsigned cause, unsigned *count,
                                 unsigned long long *to) {
    unsigned there;
    Return found = number(gpu, "nvmlDeviceGetRetiredPages",
                          cause ? "retired_pages_double_bit" : "retired_pages_single_bit", &there);
    if (found) return found;
    unsigned room = *count;
    *count = there;
    if (room < there) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there && to; i++) to[i] = i;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")

/* --- fields --------------------------------------------------------------------------------- */

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    unsigned type;
    Return found;
    union {
        double real;
        unsigned whole;
        unsigned long long big;
    } value;
} Field;

Return nvmlDeviceGetFieldValues(Device *gpu, int count, Field *fields) {
    Return found = before(gpu, "nvmlDeviceGetFieldValues");
    if (found) return found;
    for (int i = 0; i < count; i++) {
        char name[64];
        unsigned long long value = 0;
        snprintf(name, sizeof name, "field.%u", fields[i].field);
        fields[i].type = 1; /* unsigned int */
        fields[i].found = described(gpu, name, &value);
        fields[i].value.whole = (unsigned)value;
    }
    return SUCCESS;
}

/* --- links ---------------------------------------------------------------------------------- */

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation_gpu")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays")

/* Boards without NVLink say "not supported", others that the number of the link is wrong. */
static Return of_link(Device *gpu, const char *function, unsigned link, const char *what,
                      unsigned long long *to) {
    unsigned long long count = 0;
    char name[64];
    Return found = before(gpu, function);
    if (found) return found;
    if (described(gpu, "nvlinks", &count) || !count) return NOT_SUPPORTED;
    if (link >= count) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "nvlink.%u.%s", link, what);
    if (said(gpu, name)) return described(gpu, name, to);
    snprintf(name, sizeof name, "nvlink.*.%s", what);
    return described(gpu, name, to);
}

Return nvmlDeviceGetNvLinkState(Device *gpu, unsigned link, unsigned *to) {
    unsigned long long value = 0;
    Return found = of_link(gpu, "nvmlDeviceGetNvLinkState", link, "active", &value);
    *to = (unsigned)value;
    return found;
}

Return nvmlDeviceGetNvLinkVersion(Device *gpu, unsigned link, unsigned *to) {
    unsigned long long value = 0;
    Return found = of_link(gpu, "nvmlDeviceGetNvLinkVersion", link, "version", &value);
    *to = (unsigned)value;
    return found;
}

Return nvmlDeviceGetNvLinkErrorCounter(Device *gpu, unsigned link, unsigned counter,
                                       unsigned long long *to) {
    static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data"};
    if (counter >= 4) return NOT_SUPPORTED;
    return of_link(gpu, "nvmlDeviceGetNvLinkErrorCounter", link, names[counter], to);
}

typedef struct {
    unsigned char cluster[16];
    Return status;
    uint32_t clique;
    unsigned state;
} Fabric;

typedef struct {
    unsigned version;
    Fabric fabric;
    uint32_t health;
    unsigned char summary;
} FabricV;

Return nvmlDeviceGetGpuFabricInfo(Device *gpu, Fabric *to) {
    unsigned long long status = 0, clique = 0;
    memset(to, 0, sizeof *to);
    Return found = number(gpu, "nvmlDeviceGetGpuFabricInfo", "fabric_state", &to->state);
    if (found) return found;
    described(gpu, "fabric_status", &status);
    described(gpu, "fabric_clique", &clique);
    to->status = (Return)status;
    to->clique = (uint32_t)clique;
    return SUCCESS;
}

Return nvmlDeviceGetGpuFabricInfoV(Device *gpu, FabricV *to) {
    unsigned long long newest = 3, health = 0;
    unsigned version = to->version >> 24;
    Return found = before(gpu, "nvmlDeviceGetGpuFabricInfoV");
    if (found) return found;
    described(gpu, "fabric_version", &newest);
    if (version < 2 || version > newest) return 25; /* ARGUMENT_VERSION_MISMATCH */
    if ((found = nvmlDeviceGetGpuFabricInfo(gpu, &to->fabric))) return found;
    described(gpu, "fabric_health", &health);
    to->health = (uint32_t)health;
    return SUCCESS;
}

/* --- clocks, temperature, power ------------------------------------------------------------- */

static Return clock_of(Device *gpu, const char *function, unsigned kind, const char *suffix,
                       unsigned *to) {
    static const char *const kinds[] = {"graphics", "sm", "memory", "video"};
    char name[64];
    if (kind > 3) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "clock_%s%s_mhz", kinds[kind], suffix);
    return number(gpu, function, name, to);
}

Return nvmlDeviceGetClockInfo(Device *gpu, unsigned kind, unsigned *to) {
    return clock_of(gpu, "nvmlDeviceGetClockInfo", kind, "", to);
}

Return nvmlDeviceGetMaxClockInfo(Device *gpu, unsigned kind, unsigned *to) {
    return clock_of(gpu, "nvmlDeviceGetMaxClockInfo", kind, "_max", to);
}

Return nvmlDeviceGetApplicationsClock(Device *gpu, unsigned kind, unsigned *to) {
    return clock_of(gpu, "nvmlDeviceGetApplicationsClock", kind, "_app", to);
}

Return nvmlDeviceGetDefaultApplicationsClock(Device *gpu, unsigned kind, unsigned *to) {
    return clock_of(gpu, "nvmlDeviceGetDefaultApplicationsClock", kind, "_app_default", to);
}

/* More than one value, with commas: one for each time it is asked. */
static Return clock_reasons(Device *gpu, const char *function, unsigned long long *to) {
    static unsigned asked[MOST_GPUS];
    Return found = before(gpu, function);
    if (found) return found;
    const char *value = said(gpu, "clock_reasons");
    if (!value) return NOT_SUPPORTED;
    if ((found = error_named(value))) return found;
    for (unsigned i = 0; i < asked[gpu->index] && strchr(value, ','); i++)
        value = strchr(value, ',') + 1;
    asked[gpu->index]++;
    *to = strtoull(value, NULL, 0);
    return SUCCESS;
}

Return nvmlDeviceGetCurrentClocksEventReasons(Device *gpu, unsigned long long *to) {
    return clock_reasons(gpu, "nvmlDeviceGetCurrentClocksEventReasons", to);
}

Return nvmlDeviceGetCurrentClocksThrottleReasons(Device *gpu, unsigned long long *to) {
    return clock_reasons(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons", to);
}

Return nvmlDeviceGetTemperature(Device *gpu, unsigned sensor, unsigned *to) {
    if (sensor) return INVALID_ARGUMENT;
    return number(gpu, "nvmlDeviceGetTemperature", "temperature_c", to);
}

Return nvmlDeviceGetTemperatureThreshold(Device *gpu, unsigned kind, unsigned *to) {
    static const char *const names[] = {"temperature_shutdown_c", "temperature_slowdown_c",
                                        "temperature_memory_max_c"};
    if (kind > 2) return NOT_SUPPORTED;
    return number(gpu, "nvmlDeviceGetTemperatureThreshold", names[kind], to);
}

NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")

Return nvmlDeviceGetPowerManagementLimitConstraints(Device *gpu, unsigned *least,
                                                    unsigned *most) {
    *least = 0;
    return number(gpu, "nvmlDeviceGetPowerManagementLimitConstraints", "power_limit_max_mw", most);
}

NUMBER(nvmlDeviceGetPersistenceMode, "persistence")

Return nvmlDeviceGetTotalEnergyConsumption(Device *gpu, unsigned long long *to) {
    return big(gpu, "nvmlDeviceGetTotalEnergyConsumption", "energy_mj", to);
}

typedef struct {
    unsigned gpu, memory;
} Utilization;

Return nvmlDeviceGetUtilizationRates(Device *gpu, Utilization *to) {
    const char *function = "nvmlDeviceGetUtilizationRates";
    Return found = number(gpu, function, "utilization_gpu", &to->gpu);
    return found ? found : number(gpu, function, "utilization_memory", &to->memory);
}

/* --- MIG and processes ---------------------------------------------------------------------- */

Return nvmlDeviceGetMigMode(Device *gpu, unsigned *current, unsigned *pending) {
    return mode(gpu, "nvmlDeviceGetMigMode", "mig", current, pending);
}

Return nvmlDeviceGetMaxMigDeviceCount(Device *gpu, unsigned *to) {
    Return found = before(gpu, "nvmlDeviceGetMaxMigDeviceCount");
    *to = said(gpu, "mig") ? 7 : 0;
    return found;
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device *gpu, unsigned index, Device **to) {
    char name[64];
    Return found = before(gpu, "nvmlDeviceGetMigDeviceHandleByIndex");
    if (found) return found;
    if (index >= 7) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "mig.%u.name", index);
    if (!said(gpu, name)) return NOT_FOUND;
    instances[gpu->index][index].index = gpu->index;
    instances[gpu->index][index].instance = (int)index;
    *to = &instances[gpu->index][index];
    return SUCCESS;
}

Return nvmlDeviceGetGpuInstanceId(Device *gpu, unsigned *to) {
    char name[64];
    if (gpu->instance < 0) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "mig.%d.instance", gpu->instance);
    return number(gpu, "nvmlDeviceGetGpuInstanceId", name, to);
}

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;

/* "process.0 = PID MIB NAME" and so on. */
Return nvmlDeviceGetComputeRunningProcesses_v3(Device *gpu, unsigned *count, Process *to) {
    unsigned there = 0, room = *count;
    Return found = before(gpu, "nvmlDeviceGetComputeRunningProcesses_v3");
    const char *value;
    char name[64];
    if (found || (found = hidden(gpu))) return found;
    if ((value = said(gpu, "processes")) && (found = error_named(value))) return found;
    for (;; there++) {
        if (gpu->instance < 0) snprintf(name, sizeof name, "process.%u", there);
        else snprintf(name, sizeof name, "mig.%d.process.%u", gpu->instance, there);
        if (!(value = said(gpu, name))) break;
        if (to && there < room) {
            unsigned long long used = 0;
            memset(&to[there], 0, sizeof *to);
            sscanf(value, "%u %llu", &to[there].pid, &used);
            to[there].used = used << 20;
        }
    }
    *count = there;
    return there > room || (there && !to) ? INSUFFICIENT_SIZE : SUCCESS;
}

Return nvmlSystemGetProcessName(unsigned pid, char *to, unsigned length) {
    Return found = before(NULL, "nvmlSystemGetProcessName");
    if (found) return found;
    for (int i = 0; i < line_count; i++) {
        unsigned other;
        int used = 0;
        if (!strstr(lines[i].key, ".process.")) continue;
        if (sscanf(lines[i].value, "%u %*u %n", &other, &used) < 1 || other != pid || !used)
            continue;
        snprintf(to, length, "%s", lines[i].value + used);
        return SUCCESS;
    }
    return NOT_FOUND;
}
