//! Keys by Zipf's law: the key of rank k is chosen in proportion to 1 / k^theta. As YCSB draws them (Cooper et al., SoCC
//! 2010), by the method of Gray et al. (SIGMOD 1994), and scattered over all keys by a hash.

use fastrand::Rng;

/// Terms of the sum that are added one by one; the rest is an integral.
const EXACT: u64 = 100_000;

/// Ranks from 0 on.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    /// The sum of 1 / k^theta.
    sum: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// `items` ranks, at least 1; `theta` above 0 and below 1.
    pub fn new(items: u64, theta: f64) -> Self {
        let sum = sum(items, theta);
        let eta =
            (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - self::sum(2, theta) / sum);
        Self {
            items,
            theta,
            sum,
            alpha: 1.0 / (1.0 - theta),
            eta,
        }
    }

    /// A rank below the number of items.
    pub fn rank(&self, random: &mut Rng) -> u64 {
        let part = random.f64();
        let reached = part * self.sum;
        if reached < 1.0 {
            return 0;
        }
        if reached < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * part - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }

    /// A key below the number of items: that of a rank is anywhere.
    pub fn key(&self, random: &mut Rng) -> u64 {
        scattered(self.rank(random)) % self.items
    }
}

fn sum(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT);
    let first: f64 = (1..=exact).map(|k| (k as f64).powf(-theta)).sum();
    let (from, to) = (exact as f64, items as f64);
    // Euler and Maclaurin; what is left out is below 10^-11 of it.
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    first + integral + (to.powf(-theta) - from.powf(-theta)) / 2.0
}

/// FNV-1a of 64 bits, as YCSB scatters ranks.
pub fn scattered(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_many_is_the_sum_of_all() {
        let all: f64 = (1..=1_000_000u32).map(|k| f64::from(k).powf(-0.99)).sum();
        assert!((sum(1_000_000, 0.99) / all - 1.0).abs() < 1e-9);
    }

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        let (items, draws) = (1000, 400_000);
        let zipf = Zipf::new(items, 0.9);
        let mut random = Rng::with_seed(7);
        let mut counts = vec![0u32; items as usize];
        for _ in 0..draws {
            counts[zipf.rank(&mut random) as usize] += 1;
        }
        // The first two are exact, the others an approximation: by tens.
        let weight = |k: u64| ((k + 1) as f64).powf(-0.9) / zipf.sum;
        for rank in [0, 1] {
            let found = f64::from(counts[rank as usize]) / f64::from(draws);
            assert!((found / weight(rank) - 1.0).abs() < 0.05, "{rank}: {found}");
        }
        for tens in [1, 5, 20, 90] {
            let range = tens * 10..tens * 10 + 10;
            let found: u32 = counts[range.start as usize..range.end as usize]
                .iter()
                .sum();
            let expected: f64 = range.map(weight).sum();
            let found = f64::from(found) / f64::from(draws);
            assert!(
                (found / expected - 1.0).abs() < 0.15,
                "{tens}: {found} for {expected}"
            );
        }
    }

    #[test]
    fn one_item_is_always_chosen() {
        let zipf = Zipf::new(1, 0.5);
        let mut random = Rng::with_seed(1);
        assert!((0..100).all(|_| zipf.key(&mut random) == 0));
    }
}
