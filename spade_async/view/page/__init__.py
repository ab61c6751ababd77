"""A run as one self-contained HTML page: no script, no request, readable on a phone."""
