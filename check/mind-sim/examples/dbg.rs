use mind_sim::{plan::Plan, run, trace::What};
fn main() {
    let seed = std::env::args().nth(1).unwrap().parse().unwrap();
    let from: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let plan = Plan::of_seed(seed);
    println!("{plan}");
    let outcome = run(&plan, true);
    println!("{:?}", outcome.failure);
    for record in outcome.records {
        if record.at >= from && matches!(record.what, What::Input(_) | What::Output(_) | What::Died | What::Cut(_) | What::Disturbed(_) | What::Word(..)) {
            println!("{:>12} {:?}", record.at, record.what);
        }
    }
}
