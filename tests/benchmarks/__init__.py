"""The measurements of the package work; no test asks how fast anything is."""
