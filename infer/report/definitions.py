"""The words of each measure, printed in every report so that its numbers stand on their own."""

DEFINITIONS = {
    "round": "One verification by the target: it checks the drafted tokens, keeps the accepted "
    "ones and appends one token of its own (the bonus).",
    "acceptance_length": "Tokens emitted ÷ rounds. The bonus counts; the first output token (which "
    "the prompt's own forward pass gives) does not, nor does anything after the end-of-sequence "
    "token (which itself counts), a stop string or the token limit. 1.0 means the drafter never "
    "helped.",
    "acceptance_rate": "Accepted drafted tokens ÷ drafted tokens. What was drafted for places past "
    "the end of the output counts as neither drafted nor rejected, in any round.",
    "conditional_acceptance": "For position k (0 is the first drafted token): rounds that accepted "
    "k ÷ rounds that proposed k and accepted every position before it.",
    "survival": "For position k: rounds that accepted k ÷ rounds that proposed k. A position is "
    "accepted only if every one before it is.",
    "acceptance_length_interval": "95 % bootstrap interval of the acceptance length, resampling "
    "whole prompts.",
    "tokens_per_second": "Output tokens ÷ wall-clock seconds of generation, median over the "
    "repeats. Plain is the same engine with no drafter.",
    "speedup": "Speculative ÷ plain tokens per second within one repeat; median over the repeats. "
    "Which of the two runs first alternates.",
    "lossless": "Whether greedy speculative output equals plain greedy output token for token on "
    "every prompt, in float32.",
}
