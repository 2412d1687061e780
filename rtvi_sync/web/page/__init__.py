"""The files of a page that talks, as the browser gets them."""
