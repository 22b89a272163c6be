"""What can go wrong between jobgen and a scheduler; each carries the command's exit status."""

from __future__ import annotations


class SchedulerError(Exception):
    """The scheduler said no or could not be reached."""

    exit_status = 3


class Unreachable(SchedulerError):
    """No answer: it is not known whether the request was carried out."""


class NoSuchJob(SchedulerError):
    """The handle names no job that was submitted from here."""

    exit_status = 2


class Conflict(SchedulerError):
    """A live job has the same name and other content."""

    exit_status = 1


class NeverStarts(SchedulerError):
    """The job waits for what can no longer happen, or asks for more than will ever be given."""

    exit_status = 1


class Unsubmittable(SchedulerError):
    """The job cannot be sent from here as it is: a secret or a program is missing."""

    exit_status = 2


class Unwritable(Unsubmittable):
    """The state folder takes no more."""


class Busy(SchedulerError):
    """Another command is submitting this name right now."""
