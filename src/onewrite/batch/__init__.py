"""A batch of records and one function of one message: what may be taken next, its workers, its report. It knows no source."""
