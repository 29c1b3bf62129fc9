"""`token-critic import-tokenizer`: a published tokenizer as a tokenizer folder of ours."""

from tokencritic.cli.arguments import make_parser, parse


def main(arguments: list[str]) -> None:
    parser = make_parser("import-tokenizer", "Read a published tokenizer's weights and write a tokenizer folder.")
    parser.add_argument("file", help="the weights: flax msgpack, safetensors, or a torch file")
    text = "maskgit: the official flax file; muse: maskgit-vqgan-imagenet-f16-256 as open-muse and TiTok publish it; taming: a "
    text += "VQGAN of taming-transformers"
    parser.add_argument("--kind", required=True, choices=["maskgit", "muse", "taming"], help=text)
    parser.add_argument("--image_size", type=int, help="pixels along each side, where it is not 256")
    parser.add_argument("--out", required=True, help="the folder to write")
    given = parse(parser, arguments)

    from tokencritic.interop.maskgit import import_tokenizer
    from tokencritic.interop.torch_tokenizers import import_muse_tokenizer, import_taming_tokenizer

    readers = {"maskgit": import_tokenizer, "muse": import_muse_tokenizer, "taming": import_taming_tokenizer}
    tokenizer = readers[given.kind](given.file, given.image_size)
    tokenizer.save_pretrained(given.out)
    sizes = f"{tokenizer.num_tokens} tokens of {tokenizer.codebook_size} codes, {tokenizer.image_size} pixels"
    print(f"wrote {given.out}: {sizes}")
