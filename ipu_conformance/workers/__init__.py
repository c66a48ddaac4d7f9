"""The processes that run cases: who gets which, what they hold, and what becomes of one that is lost."""
