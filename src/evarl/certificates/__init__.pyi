from .certificate import Certificate as Certificate, load as load, save as save
from .claims import CLAIMS as CLAIMS, Claim as Claim
from .compare import Candidate as Candidate, compare_policies as compare_policies
from .issue import Issued as Issued, certify as certify, issue_certificate as issue_certificate
from .names import ClaimName as ClaimName
from .protocol import Protocol as Protocol, Terms as Terms
from .verify import Reliance as Reliance, Verification as Verification, verify_certificate as verify_certificate
