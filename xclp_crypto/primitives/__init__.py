"""Building blocks without messages: codecs, keys and sealing."""
