"""In a checkout: python -m validation.job_report JOBID; on a login node: job-report JOBID."""

import sys

from validation.job_report.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
