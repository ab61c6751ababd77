"""A clock for the jail that every worker reads alike: a fixed start and a fixed tick per read.

Part of the runner: `prepare` calls `install_clock` first of all when the profile has
`virtual_clock`. It replaces what Python code reads: the functions of `time`, the `now`, `utcnow`
and `today` of `datetime`, and the waits of event loops. Sleeping moves the clock and takes no time.
It is a convenience and no boundary: the real functions stay reachable, time-outs of locks and
queues pass in real time, and `numpy.datetime64("now")` reads the machine's clock.
"""

import datetime
import queue  # noqa: F401  # keeps the real clock, and so does threading: their waits are real
import threading
import time

START_NS = 1_735_689_600 * 10**9  # 2025-01-01 00:00 UTC
TICK_NS = 10**6
REAL = datetime.date, datetime.datetime


class Clock:
    """What all readings come from; nanoseconds since the start."""

    elapsed = 0
    """Moved by reads and sleeps."""
    worked = 0
    """Moved by reads alone: the CPU clocks."""

    def restart(self):
        """Back to the start, as at the beginning of a worker."""
        self.elapsed = self.worked = 0

    def read(self):
        """One tick later: nanoseconds since the start."""
        self.elapsed += TICK_NS
        self.worked += TICK_NS
        return self.elapsed

    def read_cpu(self):
        """The same for the CPU clocks."""
        self.read()
        return self.worked

    def read_date(self):
        """The same since 1970."""
        return START_NS + self.read()

    def sleep(self, seconds):
        """Move on without waiting."""
        if not seconds >= 0:
            raise ValueError("sleep length must be non-negative")
        self.elapsed += int(seconds * 10**9)


def install_clock():
    """Replace the functions; the clock, whose `restart` belongs before each load."""
    clock = Clock()
    install_time(clock)
    install_datetime(clock)
    return clock


def install_time(clock):
    """Replace the functions of `time`."""
    sources = {
        "time": clock.read_date, "monotonic": clock.read, "perf_counter": clock.read,
        "process_time": clock.read_cpu, "thread_time": clock.read_cpu,
    }  # fmt: skip
    for name, read in sources.items():
        setattr(time, name, lambda read=read: read() / 10**9)
        setattr(time, name + "_ns", lambda read=read: read())
    by_number = {time.CLOCK_REALTIME: clock.read_date}
    by_number |= dict.fromkeys((time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID),
                               clock.read_cpu)  # fmt: skip
    time.clock_gettime_ns = lambda number: by_number.get(number, clock.read)()
    time.clock_gettime = lambda number: time.clock_gettime_ns(number) / 10**9
    time.sleep = clock.sleep
    real = {name: getattr(time, name) for name in ("gmtime", "localtime", "ctime", "strftime")}
    now = lambda: clock.read_date() / 10**9  # noqa: E731

    def since(function):
        return lambda seconds=None: function(now() if seconds is None else seconds)

    for name in ("gmtime", "localtime", "ctime"):
        setattr(time, name, since(real[name]))
    asctime, strftime = time.asctime, real["strftime"]
    time.asctime = lambda *when: asctime(*(when or (real["localtime"](now()),)))
    time.strftime = lambda form, *when: strftime(form, *(when or (real["localtime"](now()),)))


class Like(type):
    """The type of the replaced classes: what C code made is an instance of them too."""

    def __instancecheck__(cls, value):
        """Look at the class that was replaced, unless `cls` is a further subclass."""
        return isinstance(value, vars(cls).get("_real", ())) or type.__instancecheck__(cls, value)

    def __subclasscheck__(cls, other):
        """The same for classes."""
        return issubclass(other, vars(cls).get("_real", ())) or type.__subclasscheck__(cls, other)


def install_datetime(clock):
    """Replace `datetime.date` and `datetime.datetime` by subclasses of themselves."""

    def seconds():
        return clock.read_date() // 1000 / 10**6

    def now(cls, tz=None):
        return cls.fromtimestamp(seconds(), tz)

    def utcnow(cls):
        return cls.fromtimestamp(seconds(), datetime.UTC).replace(tzinfo=None)

    def today(cls):
        return cls.fromtimestamp(seconds())

    def shown(self):
        text = REAL[isinstance(self, REAL[1])].__repr__(self)
        return "datetime." + text if type(self) in replaced else text

    methods = {
        "date": {"today": classmethod(today)},
        "datetime": {"now": classmethod(now), "utcnow": classmethod(utcnow),
                     "today": classmethod(today)},
    }  # fmt: skip
    replaced = []
    for real in REAL:
        name = real.__name__
        own = {"__module__": "datetime", "__doc__": real.__doc__, "__repr__": shown, "_real": real}
        replaced.append(Like(name, (real,), own | methods[name]))
        setattr(datetime, name, replaced[-1])


def install_loop(clock):
    """Let event loops wait in the clock's time; with further threads they wait as well."""
    import selectors  # after `install_clock`, so that it reads this clock

    for name in ("EpollSelector", "PollSelector", "SelectSelector"):
        kind = getattr(selectors, name, None)
        if kind is None:
            continue

        def select(self, timeout=None, real=kind.select):
            alone = threading.active_count() == 1
            found = real(self, 0 if alone and timeout is not None else timeout)
            if not found and timeout is not None and timeout > 0:
                clock.sleep(timeout)
            return found

        kind.select = select
