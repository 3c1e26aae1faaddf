//! A test of one thread with every instruction there is: every runner must have the oracle's outcome.

use crate::{
    machine::Model,
    oracle, parser,
    test::{Outcome, Test},
};

const PROGRAM: &str = "\
X86_64 all
{ uint64_t x=5; uint32_t y=7; uint64_t z; uint32_t w=4294967295; 0:rax=5; 0:rbx=9; 0:rsi=3;
  uint64_t 0:rax; uint64_t 0:rbx; uint64_t 0:rcx; uint64_t 0:rdx; uint64_t 0:rsi; uint64_t 0:rdi; }
 P0 ;
 lock cmpxchgq %rbx,(x) ;
 lock cmpxchgl %esi,(y) ;
 movl %eax,%ecx ;
 lock xaddl %ebx,(y) ;
 lock addl $3,(w) ;
 xchgq %rsi,(x) ;
 lock addq $4,(z) ;
 mfence ;
 lock addl %ecx,(y) ;
 movq (z),%rdx ;
 movl (y),%edi ;
 sfence ;
 lfence ;
 movq %rdx,(x) ;
exists (x=0 /\\ w=0)
";

/// Fails unless `run` ends it as the oracle does.
pub(crate) fn ends_as_the_oracle_says(run: impl FnOnce(&Test) -> Outcome) {
    let test = parser::parse(PROGRAM).unwrap();
    let allowed = oracle::outcomes(&test, Model::Tso).unwrap();
    assert_eq!(allowed.len(), 1, "one thread has one outcome");
    let (found, expected) = (run(&test), allowed.first().unwrap());
    assert_eq!(
        found.shown(&test).to_string(),
        expected.shown(&test).to_string()
    );
    assert!(found.values().contains(&23), "y");
}
