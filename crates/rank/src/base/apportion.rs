//! Divides a whole number into whole parts in proportion to weights, so that the parts add up
//! exactly.

/// Returns the parts of `whole` in proportion to the weights. The parts add up to `whole`, unless
/// all weights are 0.
pub fn apportion(
    whole: u64,
    weights: impl Iterator<Item = u64> + Clone,
) -> impl Iterator<Item = u64> {
    let all: u128 = weights.clone().map(u128::from).sum();
    let (mut before, mut given) = (0_u128, 0_u64);
    weights.map(move |weight| {
        before += u128::from(weight);
        let upto = (u128::from(whole) * before).checked_div(all).unwrap_or(0) as u64;
        std::mem::replace(&mut given, upto).abs_diff(upto)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_in_proportion() {
        let parts: Vec<u64> = apportion(100, [1, 0, 3].into_iter()).collect();
        assert_eq!(parts, [25, 0, 75]);
        assert_eq!(apportion(100, [0].into_iter()).sum::<u64>(), 0);
    }

    proptest! {
        #[test]
        fn no_unit_is_lost(whole: u64, weights in prop::collection::vec(0_u64..1 << 40, 1..20)) {
            let parts: u64 = apportion(whole, weights.iter().copied()).sum();
            prop_assert_eq!(parts, if weights.iter().sum::<u64>() == 0 { 0 } else { whole });
        }
    }
}
