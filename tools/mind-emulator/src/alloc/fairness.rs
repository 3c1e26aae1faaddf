//! Jain's index: how evenly loads are spread.

/// Jain's fairness index of loads: the square of their sum over their number times the sum of their squares. It is 1 if
/// all are the same, and 1/n if one of n has everything. `None` if there are no loads, or if all are 0.
///
/// Source: Jain, Chiu and Hawe, *A quantitative measure of fairness and discrimination* (1984); MIND (SOSP 2021), section
/// 7.2, applies it to the bytes that are allocated on each memory blade.
pub fn jain(loads: &[u64]) -> Option<f64> {
    let sum: f64 = loads.iter().map(|load| *load as f64).sum();
    let squares: f64 = loads.iter().map(|load| (*load as f64).powi(2)).sum();
    (sum > 0.0).then(|| sum * sum / (loads.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_1_if_all_are_the_same_and_1_over_n_if_one_has_everything() {
        assert_eq!(jain(&[7; 8]), Some(1.0));
        assert_eq!(jain(&[0, 0, 5, 0]), Some(0.25));
        // 6 * 6 / (3 * 14).
        assert_eq!(jain(&[1, 2, 3]), Some(36.0 / 42.0));
        assert_eq!(jain(&[0, 0]), None);
        assert_eq!(jain(&[]), None);
    }

    proptest! {
        #[test]
        fn it_is_between_these_whatever_the_unit(
            loads in prop::collection::vec(0..1u64 << 30, 1..33), unit in 1..1u64 << 20,
        ) {
            let scaled: Vec<_> = loads.iter().map(|load| load * unit).collect();
            match (jain(&loads), jain(&scaled)) {
                (Some(index), Some(other)) => {
                    prop_assert!(index <= 1.0 + 1e-9 && index >= 1.0 / loads.len() as f64 - 1e-9);
                    prop_assert!((index - other).abs() < 1e-9);
                }
                (index, other) => prop_assert_eq!(index, other),
            }
        }
    }
}
