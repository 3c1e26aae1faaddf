//! The parser against arbitrary input: it never panics, and what it reads it reads again as the same
//! from what is printed.

#[path = "common/arbitrary.rs"]
mod arbitrary;

use arbitrary::Limits;
use mind_litmus::parser::{parse, parse_bytes};
use mind_litmus::test::Test;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const LIMITS: Limits = Limits {
    threads: 4,
    instructions: 5,
    compare_exchange: true,
    dense: false,
};

/// What litmus files are made of, also some of what is not supported.
const WORDS: [&str; 46] = [
    "X86_64",
    "X86",
    "SB",
    "\n",
    " ",
    "\"",
    "key=value\n",
    "{",
    "}",
    "uint64_t",
    "int",
    "x",
    "y",
    "[x]",
    "(x)",
    "0:rax",
    "1:EBX",
    "P0",
    "P1",
    "=",
    "1",
    "0x10",
    "99999999999999999999",
    ";",
    "|",
    "movq",
    "movl",
    "MOV",
    "xchgq",
    "lock",
    "mfence",
    "%rax",
    "%eax",
    "$1",
    ",",
    "(*",
    "*)",
    "exists",
    "~exists",
    "forall",
    "locations",
    "not",
    "/\\",
    "\\/",
    "true",
    "é",
];

/// Holds what was read, if it was, against what is read from what is printed.
fn check(text: &str) -> Result<(), TestCaseError> {
    if let Ok(test) = parse(text) {
        let again = parse(&test.to_string());
        prop_assert_eq!(again, Ok(test));
    }
    Ok(())
}

/// `text` with a part replaced.
fn damaged(text: &str, from: usize, length: usize, by: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let from = from % (letters.len() + 1);
    let to = (from + length).min(letters.len());
    letters[..from]
        .iter()
        .chain(by.chars().collect::<Vec<_>>().iter())
        .chain(&letters[to..])
        .collect()
}

fn tests() -> impl Strategy<Value = Test> {
    arbitrary::tests(LIMITS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_are_refused_without_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = parse_bytes(&bytes);
    }

    #[test]
    fn arbitrary_words_never_panic(words in vec(select(&WORDS[..]), 0..60)) {
        check(&words.concat())?;
        check(&format!("X86_64 A\n{{ }} P0 | P1 ; {}", words.join(" ")))?;
        check(&format!("X86 A\n{{ {}", words.join(" ")))?;
        check(&format!("X86_64 A\n{{ }} P0; movq $1,(x); {}", words.join(" ")))?;
    }

    #[test]
    fn a_damaged_test_never_panics(
        test in tests(),
        from in any::<usize>(),
        length in 0..6_usize,
        by in prop_oneof![Just(String::new()), select(&WORDS[..]).prop_map(str::to_owned), ".{0,3}"],
    ) {
        check(&damaged(&test.to_string(), from, length, &by))?;
    }

    #[test]
    fn what_is_printed_is_read_as_the_same(test in tests()) {
        prop_assert_eq!(parse(&test.to_string()), Ok(test));
    }
}

#[test]
fn an_error_is_a_place_in_the_text() {
    let text = "X86_64 A\n{ }\n P0 ;\n movq $1,(x) ;\nexists (x=1 /\\ )\n";
    for end in 0..text.len() {
        if let Err(error) = parse(&text[..end]) {
            let lines: Vec<_> = text[..end].split('\n').collect();
            assert!(error.line <= lines.len(), "{error}");
            let line = lines[error.line - 1];
            assert!(error.column <= line.chars().count() + 1, "{error}");
        }
    }
}

#[test]
fn deep_nesting_is_refused_and_wide_nesting_is_not() {
    let head = "X86_64 A\n{ } P0 ; movq $1,(x) ; exists ";
    let deep = |depth: usize| format!("{head}{}x=1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&deep(100)).is_ok());
    let error = parse(&deep(100_000)).unwrap_err();
    assert!(error.problem.contains("at most 100 parentheses"), "{error}");
    let negated = format!("{head}{} x=1", "not ".repeat(100_000));
    assert!(parse(&negated).is_err());
    let comments = format!("{}X86_64 A", "(*".repeat(100_000));
    assert!(parse(&comments).is_err());

    let wide = format!("{head}x=1{}", " /\\ x=1".repeat(50_000));
    let test = parse(&wide).unwrap();
    assert_eq!(parse(&test.to_string()), Ok(test));
}
