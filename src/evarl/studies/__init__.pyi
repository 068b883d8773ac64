from .assemble import study_report as study_report
from .catalogue import OWN_STUDIES as OWN_STUDIES, PAPER_STUDIES as PAPER_STUDIES, Study as Study, study as study
from .jobs import Job as Job, Store as Store
from .reports import StudyReport as StudyReport
from .scales import SCALES as SCALES, StudyScale as StudyScale
from .schedule import run_jobs as run_jobs
from .write import write_report as write_report
