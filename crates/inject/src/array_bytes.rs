//! Computes the size in bytes of CUDA arrays, from the width, height, depth and element type that a
//! program passes. The device may pad arrays, so the result is a lower bound.

use crate::call_args::{Frame, word};
use tprof_wire::calls::SizeArgument;

/// Size of an array of the runtime API. The `cudaChannelFormatDesc` at argument 1 describes its
/// elements.
pub fn of_channels(frame: &Frame, bytes: SizeArgument) -> u64 {
    let desc = frame.register(1);
    // SAFETY: the CUDA function has succeeded, so it has read a `cudaChannelFormatDesc` at this
    // address: four bit counts and a kind, all 32 bits.
    let (xy, zw) = unsafe { (word(desc, 0), word(desc, 8)) };
    let bits = [xy, xy >> 32, zw, zw >> 32].into_iter().map(|bits| bits & 0xffff_ffff).sum::<u64>();
    let element = bits / 8;
    match bytes {
        SizeArgument::Array => {
            element.wrapping_mul(frame.register(2)).wrapping_mul(frame.register(3).max(1))
        }
        SizeArgument::Levels => (0..frame.register(2).min(64) as u32)
            .map(|level| extent(frame, element, level))
            .fold(0, u64::wrapping_add),
        _ => extent(frame, element, 0),
    }
}

/// Size of one mip level of an array whose `cudaExtent` is on the stack.
fn extent(frame: &Frame, element: u64, level: u32) -> u64 {
    let size = |at: u8| frame.stack(at).unbounded_shr(level).max(1);
    element.wrapping_mul(size(0)).wrapping_mul(size(1)).wrapping_mul(size(2))
}

/// Size of an array of the driver API, from its descriptor; 0 for a format with packed elements.
pub fn of_descriptor(frame: &Frame, bytes: SizeArgument) -> u64 {
    let at = frame.register(1);
    let depth = matches!(bytes, SizeArgument::Descriptor3D);
    // SAFETY: the CUDA function has succeeded, so it has read a descriptor at this address: width,
    // height, then the depth if the array has three dimensions, then format and number of channels.
    let [width, height, third, format] =
        [0, 8, 16, if depth { 24 } else { 16 }].map(|offset| unsafe { word(at, offset) });
    let sizes = [width, height.max(1), if depth { third.max(1) } else { 1 }];
    let channel = match format as u32 {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 0,
    };
    sizes.into_iter().fold(channel * (format >> 32), u64::wrapping_mul)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(desc: &[u64], others: [u64; 2]) -> Frame {
        Frame::of_registers([0, desc.as_ptr() as u64, others[0], others[1], 0, 0])
    }

    #[test]
    fn an_array_has_the_bits_of_all_channels_times_its_width_and_height() {
        let four_of_32 = [32 | 32 << 32, 32 | 32 << 32];
        assert_eq!(of_channels(&frame(&four_of_32, [10, 3]), SizeArgument::Array), 16 * 30);
        let one_of_8 = [8, 0];
        assert_eq!(of_channels(&frame(&one_of_8, [10, 3]), SizeArgument::Array), 30);
    }

    #[test]
    fn an_array_without_a_height_has_one_row() {
        assert_eq!(of_channels(&frame(&[16, 0], [10, 0]), SizeArgument::Array), 20);
    }

    #[test]
    fn a_descriptor_has_one_channel_per_format_and_at_least_one_row() {
        const FLOAT: u64 = 0x20;
        let of = |words: &[u64]| of_descriptor(&frame(words, [0, 0]), SizeArgument::Descriptor);
        assert_eq!(of(&[10, 3, FLOAT | 2 << 32]), 10 * 3 * 4 * 2);
        assert_eq!(of(&[10, 0, 0x10 | 1 << 32]), 20);
        assert_eq!(of(&[10, 3, 0x08 | 4 << 32]), 120);
        assert_eq!(of(&[10, 3, 0xb0 | 1 << 32]), 0, "packed");
    }

    #[test]
    fn a_descriptor_of_three_dimensions_has_its_depth_before_its_format() {
        let words = [10, 3, 5, 0x20 | 1 << 32];
        assert_eq!(
            of_descriptor(&frame(&words, [0, 0]), SizeArgument::Descriptor3D),
            10 * 3 * 5 * 4
        );
        let flat = [10, 0, 0, 0x20 | 1 << 32];
        assert_eq!(of_descriptor(&frame(&flat, [0, 0]), SizeArgument::Descriptor3D), 40);
    }
}
