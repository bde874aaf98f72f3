"""What reading a file raises that is damaged, or something else than its name says."""

import lzma
import struct
import tarfile
import zipfile
import zlib
from tokenize import TokenError

DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,  # a header that announces more than there is
    NameError,  # where rdata knows a type of object in part
    OSError,
    RuntimeError,  # encrypted, packed in a way that Python does not know, or too deep
    SyntaxError,
    TypeError,
    ValueError,
    TokenError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Of Python, NumPy, PyArrow and rdata; wide, for they promise nothing here."""
