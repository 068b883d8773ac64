from .drawing import COLOURS as COLOURS
from .drawing import rendered as rendered
from .figures import evaluation_picture as evaluation_picture
from .records import assessment_record as assessment_record
from .records import evaluation_record as evaluation_record
from .templates import data_address as data_address
from .templates import render as render
