"""Tiny byte-level tokenizers and the chat templates that tests render with."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIALS = ("<|bos|>", "<|im_start|>", "<|im_end|>", "<|pad|>", "[INST]", "[/INST]", "</s>")
MERGES = (("Ċ", "Ċ"), ("Ġ", "h"), ("h", "i"), (">", "o"))

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The author's own statement of what the assistant writes: the end token is in, its newline is not.
TAGGED = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Trims, lifts reasoning out of the answer, and shows that of the last turn only.
THINKING = (
    "{% for m in messages %}{% set content = m['content'] %}{% set reasoning = '' %}"
    "{% if m['role'] == 'assistant' %}"
    "{% if m['reasoning_content'] is string %}{% set reasoning = m['reasoning_content'] %}"
    "{% elif '</think>' in content %}"
    "{% set reasoning = content.split('</think>')[0].split('<think>')[-1] | trim %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' and loop.last %}"
    "{{ '<think>\n' + reasoning + '\n</think>\n\n' }}{% endif %}"
    "{{ (content | trim) + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# The generation prompt opens the reasoning, and the history never shows it.
OPENED_THINKING = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{{ m['content'].split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
# No generation prompt of its own, a token of the start, white space that the template puts in.
INSTRUCT = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{% if not loop.first and loop.previtem['role'] == 'user' %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}"
    "{% if loop.first %}{{ raise_exception('a conversation starts with the user') }}{% endif %}"
    "{{ ' ' + (m['content'] | trim) + ' </s>' }}{% endif %}{% endfor %}"
)
# Speaks without any token of the tokenizer.
PLAIN = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
BOS_CHATML = "{{ bos_token }}" + CHATML


def make_tokenizer(
    template: str | None = CHATML,
    *,
    padding_side: str = "right",
    add_bos: bool = False,
    trim_offsets: bool = False,
    eos_token: str = "<|im_end|>",
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with a few merges.

    `add_bos` puts `<|bos|>` in front of what is encoded with special tokens; `trim_offsets` cuts
    white space off the offsets of tokens, as many published tokenizers do.
    """
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    backend = Tokenizer(
        models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=list(MERGES))
    )
    # No splitting into words: a token may then reach over the border of a turn.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in SPECIALS])
    steps = [processors.ByteLevel(trim_offsets=trim_offsets)]
    if add_bos:
        bos = ("<|bos|>", backend.token_to_id("<|bos|>"))
        steps.append(processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[bos]))
    backend.post_processor = processors.Sequence(steps)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token=eos_token,
        pad_token="<|pad|>",
        padding_side=padding_side,
    )
    tokenizer.chat_template = template
    return tokenizer
