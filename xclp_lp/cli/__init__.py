"""What ``xclp …`` does on the command line; nothing else prints."""
