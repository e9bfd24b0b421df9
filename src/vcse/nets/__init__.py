"""Networks of many learners at once: parameters with a leading learner axis, and functions of them."""
