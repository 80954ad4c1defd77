"""The local page: run folders as tables, charts, findings and maps, served on this machine or as one HTML file."""
