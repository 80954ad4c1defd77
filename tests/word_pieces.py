"""A tokenizer of words cut into letters, which can write all of them in any case."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


def word_pieces(lowercase=False, **options):
    """A cased WordPiece vocabulary of single letters, so that every word can be written."""
    letters = [chr(i) for i in range(33, 127)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    words = Tokenizer(models.WordPiece({each: i for i, each in enumerate(vocabulary)}, unk_token="[UNK]"))
    words.normalizer = normalizers.Lowercase() if lowercase else None
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece(cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", **options)


CASED = word_pieces()


def ids_of(text, tokenizer=CASED):
    return [2, *tokenizer(text, add_special_tokens=False)["input_ids"], 3]


def saved_words(words, folder):
    """Folder of a tokenizer that knows these words as wholes, the first four of which are the special ones."""
    known = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    known.pre_tokenizer = pre_tokenizers.Whitespace()
    known.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(tokenizer_object=known, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    return str(folder)
