"""A trainer whose losses are written beforehand."""


class Scripted:
    """A model that knows what to say, and counts how often it is asked."""

    def __init__(self, question="What turns?", answer="rope", verdict="Yes.", without="no idea"):
        self.said, self.asked = (question, answer, verdict, without), 0

    def __call__(self, prompt):
        self.asked += 1
        question, answer, verdict, without = self.said
        if prompt.endswith("Question:"):
            return question
        if prompt.endswith("(yes or no)?"):
            return verdict
        return without if prompt.startswith("Question:") else answer
