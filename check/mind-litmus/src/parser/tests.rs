use super::*;
use crate::test::{Fence, Instruction, Observable, Operand, Quantifier, Register, Width};

fn read(text: &str) -> Test {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A test of one thread with this initial state, program and end.
fn small(initial: &str, program: &str, end: &str) -> Result<Test, ParseError> {
    parse(&format!("X86_64 A\n{{{initial}}}\nP0;\n{program};\n{end}"))
}

const SB: &str = r#"X86_64 SB
"PodWR Fre PodWR Fre"
Cycle=Fre PodWR Fre PodWR
Relax=
Prefetch=0:x=F,0:y=T,1:y=F,1:x=T
{
uint64_t y; uint64_t x=3; uint64_t 1:rax; uint64_t 0:rax=7;

}
 P0            | P1            ;
 movq $1,(x)   | movq $1,(y)   ;
 mfence        |               ;
 movq (y),%rax | movq (x),%rax ;
exists (0:rax=0 /\ 1:rax=0)
"#;

#[test]
fn a_test_is_read() {
    let test = read(SB);
    assert_eq!(test.name(), "SB");
    assert_eq!(test.description(), Some("PodWR Fre PodWR Fre"));
    assert_eq!(test.info("Cycle"), Some("Fre PodWR Fre PodWR"));
    assert_eq!(test.info("Relax"), Some(""));
    assert_eq!(test.info("Orig"), None);
    let x = "x".parse().unwrap();
    assert_eq!(test.memory()[&x].initial, 3);
    assert_eq!(test.memory()[&x].width, Width::Quad);
    assert_eq!(
        test.threads()[0].instructions,
        [
            Instruction::Store {
                width: Width::Quad,
                value: Operand::Immediate(1),
                to: "x".parse().unwrap(),
            },
            Instruction::Fence(Fence::Memory),
            Instruction::Load {
                width: Width::Quad,
                from: "y".parse().unwrap(),
                to: Register::Rax,
            },
        ]
    );
    assert_eq!(test.threads()[0].initial[&Register::Rax], 7);
    assert_eq!(test.threads()[1].instructions.len(), 2);
    assert_eq!(test.condition().quantifier, Quantifier::Exists);
    assert_eq!(test.condition().to_string(), "exists (0:rax=0 /\\ 1:rax=0)");
    let observed: Vec<_> = test.observed().iter().map(ToString::to_string).collect();
    assert_eq!(observed, ["0:rax", "1:rax", "x", "y"]);
}

#[test]
fn intels_syntax_has_targets_first() {
    let intel = "X86 A\n{ 0:EBX=2; }\n P0 | P1 ;\n MOV [x],$1 | XCHG [x],EAX ;\n MOV EAX,[y] | MFENCE ;\n \
                 MOV [y],EBX | LOCK; INC [x] ;\n LOCK CMPXCHG [x],EBX | mov [y],5 ;\nexists (0:EAX=0)";
    let att = "X86_64 A\n{ 0:rbx=2; }\n P0 | P1 ;\n movl $1,(x) | xchgl %eax,(x) ;\n movl (y),%eax | mfence ;\n \
               movl %ebx,(y) | lock addl $1,(x) ;\n lock cmpxchgl %ebx,(x) | movl $5,(y) ;\nexists (0:rax=0)";
    assert_eq!(read(intel), read(att));
}

#[test]
fn only_what_is_declared_or_in_the_condition_is_observed() {
    let program = "movq %rax,(x)";
    for (initial, end, observed) in [
        ("", "exists (x=1)", vec!["x"]),
        ("x=1; 0:rax=2", "exists true", vec![]),
        ("uint64_t x; long 0:rbx", "exists true", vec!["0:rbx", "x"]),
        ("uint64_t x=1", "exists (0:rax=1)", vec!["0:rax", "x"]),
        (
            "",
            "locations [x; 0:rax;] exists (0:rcx=1)",
            vec!["0:rax", "0:rcx", "x"],
        ),
        (
            "[x]=1",
            "locations [x uint64_t] forall (P0:EAX=1)",
            vec!["0:rax", "x"],
        ),
    ] {
        let test = small(initial, program, end).unwrap_or_else(|error| panic!("{end}: {error}"));
        let found: Vec<_> = test.observed().iter().map(ToString::to_string).collect();
        assert_eq!(found, observed, "{initial} {end}");
    }
}

#[test]
fn a_location_is_as_wide_as_its_type_or_its_accesses() {
    for (initial, program, width) in [
        ("", "movq $1,(x)", Width::Quad),
        ("", "movl $1,(x)", Width::Long),
        ("", "mov $1,(x)", Width::Long),
        ("", "mov %rax,(x)", Width::Quad),
        ("", "mov %eax,[x]", Width::Long),
        ("int x", "mov $1,(x)", Width::Long),
        ("int64_t x", "mov $1,(x)", Width::Quad),
        ("int x", "nop", Width::Long),
    ] {
        let test = small(initial, program, "exists (x=1)").unwrap();
        let cell = test.memory()[&"x".parse().unwrap()];
        assert_eq!(cell.width, width, "{initial} {program}");
    }
}

#[test]
fn propositions_bind_as_in_the_herd_tools() {
    for (text, printed) in [
        ("x=1 /\\ y=2 \\/ x=3", "x=1 /\\ y=2 \\/ x=3"),
        ("x=1 /\\ (y=2 \\/ x=3)", "x=1 /\\ (y=2 \\/ x=3)"),
        ("(x=1 /\\ y=2) /\\ x=3", "(x=1 /\\ y=2) /\\ x=3"),
        ("((x=1))", "x=1"),
        ("not x=1 /\\ y=2", "not (x=1) /\\ y=2"),
        ("~(x=1 /\\ y=2)", "not (x=1 /\\ y=2)"),
        ("x!=1 \\/ [y]<>0x10", "not (x=1) \\/ not (y=16)"),
        ("x==1 => y=2 => x=3", "not (x=1) \\/ not (y=2) \\/ x=3"),
        ("true /\\ false", "true /\\ false"),
        ("1:rax=1 /\\ P0:r8d=2", "1:rax=1 /\\ 0:r8=2"),
    ] {
        let text = format!("X86_64 A\n{{}}\nP0 | P1;\nexists ({text})");
        let test = read(&text);
        assert_eq!(test.condition().proposition.to_string(), printed, "{text}");
    }
    for (text, quantifier) in [
        ("exists x=1", Quantifier::Exists),
        ("~exists (x=1)", Quantifier::NotExists),
        ("not exists (x=1)", Quantifier::NotExists),
        ("forall\n(x=1);", Quantifier::ForAll),
        ("", Quantifier::ForAll),
    ] {
        let test = small("", "nop", text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(test.condition().quantifier, quantifier, "{text}");
    }
}

#[test]
fn comments_may_be_anywhere() {
    let text = "(* one *) X86_64 A\n(* two (* nested *) *)\n\"A\"\n{ x=1; (* x=2; *) }\n P0 (* P1 *) ;\n \
                movq (* $2 *) $1,(x) ;\n(* exists *)\nexists (* ( *) (x=1)\n(* end *)";
    let test = read(text);
    assert_eq!(test.threads()[0].instructions.len(), 1);
    assert_eq!(test.condition().to_string(), "exists (x=1)");
}

#[test]
fn registers_that_begin_as_zero_are_like_others() {
    let test = small("0:rax=0; y=7", "movq %rax,(x)", "exists (x=0)").unwrap();
    assert!(test.threads()[0].initial.is_empty());
    // It is neither accessed nor observed.
    assert!(!test.memory().contains_key(&"y".parse().unwrap()));
    assert!(
        test.observed()
            .iter()
            .all(|of| matches!(of, Observable::Memory(_)))
    );
}

#[test]
fn what_is_not_understood_is_refused_with_its_place_and_what_was_expected() {
    let mut wrong = Vec::new();
    let head = "X86_64 A\n{ }\n P0 ;\n ";
    let program = |line: &str| format!("{head}{line} ;\nexists (x=1)\n");
    let initial = |items: &str| format!("X86_64 A\n{{ {items} }}\n P0 ;\nexists (x=1)\n");
    let end = |end: &str| format!("{head}movq $1,(x) ;\n{end}\n");
    for (text, line, column, problem) in [
        (
            "".into(),
            1,
            1,
            "expected the architecture, `X86_64` or `X86`",
        ),
        ("AArch64 A\n".into(), 1, 1, "expected the architecture"),
        ("X86_64".into(), 1, 7, "expected the test's name"),
        (
            "X86_64 A B\n{}".into(),
            1,
            10,
            "the end of the line after the test's name, found `B`",
        ),
        (
            "X86_64 A\nfoo bar\n{}".into(),
            2,
            5,
            "expected `=`, found `bar`",
        ),
        (
            "X86_64 A\n\"open\n{}".into(),
            2,
            6,
            "before the end of the line",
        ),
        (
            "X86_64 A\n!\n".into(),
            2,
            1,
            "expected a line `key=value`, a description in quotes, or the initial state",
        ),
        ("X86_64 A\n(* (* *)\n{}".into(), 2, 1, "`*)` is missing"),
        (
            initial("x=y"),
            2,
            5,
            "expected a number; negative numbers and addresses are not supported, found `y`",
        ),
        (initial("x=-1"), 2, 5, "expected a number; negative"),
        (
            initial("uint64_t x[2]"),
            2,
            13,
            "expected `;` or `}`, found `[`",
        ),
        (
            initial("uint64_t *x"),
            2,
            12,
            "expected `;` or `}`, found `*`",
        ),
        (
            initial("char x"),
            2,
            3,
            "expected one of the types int, int32_t",
        ),
        (
            initial("x=1; x=2"),
            2,
            8,
            "`x` is in the initial state twice",
        ),
        (
            initial("0:rax=1; P0:eax=2"),
            2,
            12,
            "`0:rax` is in the initial state twice",
        ),
        (
            initial("int x; long x"),
            2,
            15,
            "`x` is in the initial state twice",
        ),
        (initial("0:xmm0=1"), 2, 3, "expected a register"),
        (
            initial("1:rax=1"),
            2,
            3,
            "there is no thread 1; expected 0 to 0",
        ),
        (
            initial("x=4294967296"),
            2,
            5,
            "`x` cannot begin as 4294967296: it has 4 bytes",
        ),
        (
            initial("x=18446744073709551616"),
            2,
            5,
            "expected a number below 2^64",
        ),
        (initial("x=1 y=2"), 2, 7, "expected `;` or `}`, found `y`"),
        (
            "X86_64 A\n{ }\n P1 ;".into(),
            3,
            2,
            "`P0`, `P1` and so on, in order, found `P1`",
        ),
        (
            "X86_64 A\n{ }\n".into(),
            3,
            1,
            "expected the threads, as in `P0 | P1 ;`, found the end of the file",
        ),
        (
            program("movq $1,(x) | nop"),
            4,
            14,
            "expected `;` after the last thread's instruction, found `|`",
        ),
        (
            "X86_64 A\n{ }\nP0|P1;\nnop;\n".into(),
            4,
            4,
            "expected `|` and the next thread's instruction, found `;`",
        ),
        (
            program("movq $1"),
            4,
            2,
            "`movq` cannot have these operands; expected `(x),%rax`",
        ),
        (
            program("movq (x),(y)"),
            4,
            2,
            "`movq` cannot have these operands",
        ),
        (
            program("movq $1,$2"),
            4,
            2,
            "`movq` cannot have these operands",
        ),
        (
            program("xchgq %rax,%rbx"),
            4,
            2,
            "`xchgq` cannot have these operands; expected `%rax,(x)`",
        ),
        (program("movq"), 4, 2, "`movq` cannot have these operands"),
        (program("movb $1,(x)"), 4, 2, "expected mov, xchg, mfence"),
        (program("jmp L"), 4, 2, "expected mov, xchg, mfence"),
        (
            program("L0: nop"),
            4,
            2,
            "labels and jumps are not supported",
        ),
        (
            program("movq (%rsi),%rax"),
            4,
            8,
            "addresses in registers are not supported, found `%`",
        ),
        (
            program("movq 8(%rsi),%rax"),
            4,
            8,
            "expected `;` after the last thread's instruction, found `(`",
        ),
        (program("movq $1,(x"), 4, 13, "expected `)`, found `;`"),
        (
            program("movq $x,%rax"),
            4,
            8,
            "expected a number; negative numbers and addresses",
        ),
        (
            program("movq $2147483648,(x)"),
            4,
            8,
            "a constant of at most 2147483647",
        ),
        (
            program("movq (x),%eax"),
            4,
            12,
            "`eax` has 4 bytes, as the rest of the instruction has not",
        ),
        (program("movq (x),%rsp"), 4, 12, "without the stack pointer"),
        (
            program("mfence %rax"),
            4,
            2,
            "`mfence` has neither operands nor `lock`",
        ),
        (
            program("lock movq $1,(x)"),
            4,
            7,
            "`movq` cannot have `lock`",
        ),
        (
            program("xaddq %rax,(x)"),
            4,
            2,
            "`xaddq` of memory without `lock` is not atomic",
        ),
        (
            program("lock"),
            5,
            1,
            "expected an instruction after `lock`, found `exists`",
        ),
        (
            program("nop ; movl $1,(x) ; movq $1,(x)"),
            4,
            22,
            "thread 0 accesses 8 bytes of `x`, which has 4",
        ),
        (end("exists"), 6, 1, "expected a proposition such as"),
        (end("exists (x=1"), 6, 1, "expected `)`"),
        (
            end("exists (x=1 /\\ )"),
            5,
            16,
            "expected a proposition such as",
        ),
        (
            end("exists (x=1) y"),
            5,
            14,
            "expected `/\\`, `\\/` or the end of the file, found `y`",
        ),
        (
            end("exists (x)"),
            5,
            10,
            "expected `==`, `=`, `!=` or `<>`, found `)`",
        ),
        (
            end("exists (x=y)"),
            5,
            11,
            "addresses and other locations are not supported",
        ),
        (end("exists (1:rax=0)"), 5, 9, "there is no thread 1"),
        (end("exists (0:rip=0)"), 5, 9, "expected a register"),
        (
            end("filter x=1 exists x=1"),
            5,
            1,
            "expected the condition: `exists`, `~exists` or `forall`, found `filter`",
        ),
        (
            end("locations [x; +] exists x=1"),
            5,
            15,
            "expected a location, a register, or `]`",
        ),
    ] {
        let text: String = text;
        let error = parse(&text).map(|test| test.to_string()).expect_err(&text);
        if !error.problem.contains(problem) || (error.line, error.column) != (line, column) {
            wrong.push(format!(
                "{error}\nexpected line {line}, column {column}: {problem}\n{text}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_place() {
    let error = parse_bytes(b"X86_64 A\n{ \xff }").unwrap_err();
    let expected = "line 2, column 3: expected text in UTF-8, found the byte 0xff";
    assert_eq!(error.to_string(), expected);
    assert_eq!(parse_bytes(SB.as_bytes()), Ok(read(SB)));
}
