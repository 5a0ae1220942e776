"""The program from a checkout; on a login node it is job-report.

python -m roles.job_report.files.job_report JOBID
"""

import sys

from roles.job_report.files.job_report.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
