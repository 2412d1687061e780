"""A program in which gevent has patched everything, and a greenlet shows that the others go on."""

# The start of a program whose greenlet counts while others work.
TICKING = """
    from gevent import monkey
    monkey.patch_all()
    import gevent

    ticks = []

    def tick():
        while True:
            ticks.append(1)
            gevent.sleep(0.01)

    ticker = gevent.spawn(tick)
"""
