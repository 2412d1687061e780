"""What a listener notes of a conversation: who said what, how fast the bot was, what both sounded like.

Shared by the programs that show it, the command line and notebooks.
"""
