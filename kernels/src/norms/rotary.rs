//! Rotary position embedding (RoFormer; Su et al., 2021).

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::launch::Run;

/// The numbers that are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// Numbers i and i + dim / 2, as in Llama of Hugging Face and GPT-NeoX.
    Halves,
    /// Numbers 2 i and 2 i + 1, as in GPT-J and Llama of Meta.
    Adjacent,
}

/// The most tokens of a block.
const TOKENS: usize = 16;

/// The rotated tiles of a block: tokens of one head.
fn rotated<T: Number>(
    [a, b]: [Array<T, 4>; 2],
    [cos, sin]: [Array<T, 2>; 2],
    [tokens, tile]: [usize; 2],
) -> [Tile<f32, 4>; 2] {
    let (token, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let shape = [1, 1, tokens, tile];
    let [a, b] = [a, b].map(|x| x.load((batch, head, token, 0), shape).cast::<f32>());
    let [cos, sin] = [cos, sin].map(|x| x.load((token, 0), [tokens, tile]).cast::<f32>().reshape(shape));
    [a * cos - b * sin, b * cos + a * sin]
}

/// Both numbers of a pair are in arrays of their own.
fn halves<T: Number>(x: [Array<T, 4>; 2], angles: [Array<T, 2>; 2], y: [ArrayMut<T, 4>; 2], tile: [usize; 2]) {
    let at = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    let [low, high] = rotated(x, angles, tile);
    y[0].store(at, low.cast::<T>());
    y[1].store(at, high.cast::<T>());
}

/// The results of a pair are adjacent.
fn adjacent<T: Number>(x: [Array<T, 4>; 2], angles: [Array<T, 2>; 2], y: ArrayMut<T, 4>, tile: [usize; 2]) {
    let [even, odd] = rotated(x, angles, tile);
    y.store((ct::bid(2), ct::bid(1), ct::bid(0), 0), even.interleave(odd, 3).cast::<T>());
}

/// Queues the rotation of tokens of shape (batch, heads, tokens, dim) by the angles of cos and sin, of shape (tokens,
/// dim / 2).
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::Pairs;
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[1.0f32, 2.0, 3.0, 4.0], [1, 1, 1, 4])?;
/// let (cos, sin) = (device.zeros([1, 2])?, device.full([1, 2], 1.0)?); // quarter turns
/// let mut y = device.zeros([1, 1, 1, 4])?;
/// cutlet_kernels::rotary(&device.default_stream(), x.view(), [cos.view(), sin.view()], y.view_mut(), Pairs::Halves)?;
/// assert_eq!(y.to_vec()?, [-3.0, -4.0, 1.0, 2.0]);
/// cutlet_kernels::rotary(&device.default_stream(), x.view(), [cos.view(), sin.view()], y.view_mut(), Pairs::Adjacent)?;
/// assert_eq!(y.to_vec()?, [-2.0, 1.0, -4.0, 3.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of the launch. Shapes are not checked.
#[track_caller]
pub fn rotary<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 4>,
    [cos, sin]: [DeviceView<T, 2>; 2],
    y: DeviceViewMut<T, 4>,
    pairs: Pairs,
) -> ct::Result<()> {
    let [batch, heads, tokens, dim] = x.shape();
    if x.is_empty() || dim < 2 {
        return Ok(());
    }
    let tile = [tokens.next_power_of_two().min(TOKENS), (dim / 2).next_power_of_two()];
    let launch = ct::Launch::new([tokens.div_ceil(tile[0]), heads, batch]).stream(stream);
    match pairs {
        Pairs::Halves => {
            let ((low, high), (first, second)) = (x.split_at(3, dim / 2)?, y.split_at_mut(3, dim / 2)?);
            launch.run(halves::<T>, ([low, high], [cos, sin], [first, second], ct::Constant(tile)))
        }
        Pairs::Adjacent => {
            let x = [x.step(3, 2)?, x.slice(3, 1..)?.step(3, 2)?];
            launch.run(adjacent::<T>, (x, [cos, sin], y, ct::Constant(tile)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::{bf16, f16};

    fn generates<T: Number>() -> ct::Result<()> {
        let (x, angles) = (ct::ArraySpec::<T, 4>::new([2, 8, 100, 64]), ct::ArraySpec::<T, 2>::new([100, 64]));
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            let (tile, both) = (ct::Constant([16, 64]), [x.mutable(), x.mutable()]);
            ct::inspect(halves::<T>, ([x, x], [angles, angles], both, tile)).target(target).ptx()?;
            ct::inspect(adjacent::<T>, ([x, x], [angles, angles], x.mutable(), tile)).target(target).ptx()?;
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>()?;
        generates::<f16>()?;
        generates::<bf16>()
    }

    #[test]
    fn tokens_of_any_number_and_stride_are_rotated() -> ct::Result<()> {
        let device = ct::Device::cpu();
        let [batch, heads, tokens, dim] = [2, 3, 37, 24];
        let value = |b: usize, h: usize, t: usize, i: usize| ((b * 7 + h * 5 + t * 3 + i * 11) % 17) as f32 - 8.0;
        // In memory the tokens are outside of the heads.
        let x = device.from_fn([batch, tokens, heads, dim], |[b, t, h, i]| value(b, h, t, i))?;
        let angle = |t: usize, i: usize| t as f32 / 10f32.powf(i as f32 / 6.0);
        let cos = device.from_fn([tokens, dim / 2], |[t, i]| angle(t, i).cos())?;
        let sin = device.from_fn([tokens, dim / 2], |[t, i]| angle(t, i).sin())?;
        for (pairs, other) in [(Pairs::Halves, dim / 2), (Pairs::Adjacent, 1)] {
            let mut y = device.zeros([batch, heads, tokens, dim])?;
            let x = x.permute([0, 2, 1, 3])?;
            rotary(&device.default_stream(), x, [cos.view(), sin.view()], y.view_mut(), pairs)?;
            for (at, y) in y.to_vec()?.into_iter().enumerate() {
                let [b, h, t, i] = [at / dim / tokens / heads, at / dim / tokens % heads, at / dim % tokens, at % dim];
                let (pair, second) = match pairs {
                    Pairs::Halves => (i % other, i >= other),
                    Pairs::Adjacent => (i / 2, i % 2 == 1),
                };
                let (sin, cos) = angle(t, pair).sin_cos();
                let want = match second {
                    false => value(b, h, t, i) * cos - value(b, h, t, i + other) * sin,
                    true => value(b, h, t, i) * cos + value(b, h, t, i - other) * sin,
                };
                assert!((y - want).abs() < 1e-4, "{pairs:?} at {:?}: {y}, not {want}", [b, h, t, i]);
            }
        }
        Ok(())
    }
}
