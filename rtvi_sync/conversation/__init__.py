"""What is said in the sessions of a client: its turns, what is asked, and what is expected."""
