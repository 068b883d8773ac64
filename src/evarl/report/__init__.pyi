from .drawing import COLOURS as COLOURS, rendered as rendered
from .figures import evaluation_picture as evaluation_picture
from .records import assessment_record as assessment_record, evaluation_record as evaluation_record
from .templates import data_address as data_address, render as render
