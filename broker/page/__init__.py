"""The files of the status page; `broker.page_files` serves them."""
