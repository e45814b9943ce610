//! Rotary position embedding (RoFormer; Su et al., 2021), with its gradient: the inverse rotation.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// The numbers that are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// Numbers i and i + dim / 2, as in Llama of Hugging Face and GPT-NeoX.
    Halves,
    /// Numbers 2 i and 2 i + 1, as in GPT-J and Llama of Meta.
    Adjacent,
}

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    pairs: Pairs,
    /// Rotation by the opposite angles.
    inverse: bool,
    /// Heads, tokens and pairs of a tile.
    tile: [usize; 3],
}

/// An array, or its halves along the last axis.
type Operand<T> = (Vec<Array<T, 4>>, Vec<ArrayMut<T, 4>>);

/// Rotates a tile of heads and tokens.
fn rotate<T: Number>((x, y): &Operand<T>, at: [Scalar<i32>; 4], [cos, sin]: [Tile<f32, 4>; 2], form: Form) {
    let [heads, tokens, pairs] = form.tile;
    let turned = |[a, b]: [Tile<f32, 4>; 2]| [a * cos - b * sin, b * cos + a * sin];
    match form.pairs {
        Pairs::Halves => {
            let halves = [0, 1].map(|half| x[half].load(at, [1, heads, tokens, pairs]).cast::<f32>());
            for (y, half) in y.iter().zip(turned(halves)) {
                y.store(at, half.cast::<T>());
            }
        }
        Pairs::Adjacent => {
            let both = x[0].load(at, [1, heads, tokens, 2 * pairs]).cast::<f32>();
            let [even, odd] = turned(both.reshape([1, heads, tokens, pairs, 2]).unstack(4));
            y[0].store(at, even.interleave(odd, 3).cast::<T>());
        }
    }
}

/// The heads of `q` precede those of `k` in the grid.
fn kernel<T: Number>(q: Operand<T>, k: Option<Operand<T>>, angles: [Array<T, 2>; 2], form: Form) {
    let [heads, tokens, pairs] = form.tile;
    let (token, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [cos, sin] = angles.map(|x| x.load((token, 0), [tokens, pairs]).cast::<f32>().reshape([1, 1, tokens, pairs]));
    let angles = [cos, if form.inverse { -sin } else { sin }];
    let zero = ct::scalar(0);
    match k {
        None => rotate(&q, [batch, head, token, zero], angles, form),
        Some(k) => {
            let of_q = q.0[0].extent(1).ceil_div(heads as i32);
            let first = || rotate(&q, [batch, head, token, zero], angles, form);
            let second = || rotate(&k, [batch, head - of_q, token, zero], angles, form);
            ct::if_else(head.lt(of_q), first, second);
        }
    }
}

/// Views of an operand and its result.
type Views<'a, T> = (Vec<DeviceView<'a, T, 4>>, Vec<DeviceViewMut<'a, T, 4>>);

#[track_caller]
fn views<'a, T: Number>(x: DeviceView<'a, T, 4>, y: DeviceViewMut<'a, T, 4>, pairs: Pairs) -> ct::Result<Views<'a, T>> {
    let half = x.shape()[3] / 2;
    Ok(match pairs {
        Pairs::Halves => {
            let ((low, high), (first, second)) = (x.split_at(3, half)?, y.split_at_mut(3, half)?);
            (vec![low, high], vec![first, second])
        }
        Pairs::Adjacent => (vec![x], vec![y]),
    })
}

#[track_caller]
fn launch<T: Number>(
    stream: &Stream,
    [q, k]: [Option<(DeviceView<T, 4>, DeviceViewMut<T, 4>)>; 2],
    [cos, sin]: [DeviceView<T, 2>; 2],
    pairs: Pairs,
    inverse: bool,
) -> ct::Result<()> {
    let ([tokens, half], mut extents) = (cos.shape(), Vec::new());
    for (x, y) in [&q, &k].into_iter().flatten() {
        require(x.shape()[2..] == [tokens, 2 * half] && x.shape() == y.shape() && sin.shape() == cos.shape(), || {
            let (x, y, cos, sin) = (x.shape(), y.shape(), cos.shape(), sin.shape());
            format!(
                "rotation of {x:?} into {y:?} by angles of {cos:?} and {sin:?}: (.., tokens, dim), (tokens, dim / 2)"
            )
        })?;
        extents.push(x.shape());
    }
    require(extents.iter().all(|x| x[0] == extents[0][0]), || format!("rotation of batches of shapes {extents:?}"))?;
    let most = extents.iter().map(|x| x[1]).max().unwrap_or(0);
    let mut operands = [q, k].into_iter().flatten().filter(|(x, _)| !x.is_empty());
    let Some((x, y)) = operands.next() else { return Ok(()) };
    let (batch, width) = (x.shape()[0], half.next_power_of_two());
    let of_tokens = tokens.next_power_of_two().min(8);
    let of_heads = (4096 / of_tokens / width).clamp(1, most.next_power_of_two());
    let form = Form { pairs, inverse, tile: [of_heads, of_tokens, width] };
    let mut heads = x.shape()[1].div_ceil(of_heads);
    let first = views(x, y, pairs)?;
    let second = match operands.next() {
        None => None,
        Some((x, y)) => {
            heads += x.shape()[1].div_ceil(of_heads);
            Some(views(x, y, pairs)?)
        }
    };
    let grid = [tokens.div_ceil(of_tokens), heads, batch];
    // Two accesses of 16 bytes of a thread for each array: 83 us by the model in the place of 130.
    let hints = ct::Hints::new().num_warps(8);
    ct::Launch::new(grid).hints(hints).stream(stream).run(kernel::<T>, (first, second, [cos, sin], ct::Constant(form)))
}

/// Queues the rotation of tokens of shape (batch, heads, tokens, dim) by the angles of cos and sin,
/// of shape (tokens, dim / 2).
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
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn rotary<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 4>,
    angles: [DeviceView<T, 2>; 2],
    y: DeviceViewMut<T, 4>,
    pairs: Pairs,
) -> ct::Result<()> {
    launch(stream, [Some((x, y)), None], angles, pairs, false)
}

/// Queues the rotation of queries and keys in one launch. Both have the shape of [`rotary`], with
/// heads of their own number.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::{Pairs, norms::rotary_pair};
///
/// let device = ct::Device::cpu();
/// let (q, k) = (device.full([1, 2, 1, 2], 1.0f32)?, device.full([1, 1, 1, 2], 2.0)?);
/// let (cos, sin) = (device.zeros([1, 1])?, device.full([1, 1], 1.0)?); // quarter turns
/// let (mut of_q, mut of_k) = (device.zeros([1, 2, 1, 2])?, device.zeros([1, 1, 1, 2])?);
/// let (operands, angles) = ([q.view(), k.view()], [cos.view(), sin.view()]);
/// rotary_pair(&device.default_stream(), operands, angles, [of_q.view_mut(), of_k.view_mut()], Pairs::Halves)?;
/// assert_eq!((of_q.to_vec()?, of_k.to_vec()?), (vec![-1.0, 1.0, -1.0, 1.0], vec![-2.0, 2.0]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`rotary`].
#[track_caller]
pub fn rotary_pair<T: Number>(
    stream: &Stream,
    [q, k]: [DeviceView<T, 4>; 2],
    angles: [DeviceView<T, 2>; 2],
    [of_q, of_k]: [DeviceViewMut<T, 4>; 2],
    pairs: Pairs,
) -> ct::Result<()> {
    launch(stream, [Some((q, of_q)), Some((k, of_k))], angles, pairs, false)
}

/// Queues the gradients of [`rotary_pair`]: the inverse rotations of the gradients of both results.
/// Those of [`rotary`] are the same with an array without heads in the place of `k`.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::{Pairs, norms::rotary_backward};
///
/// let device = ct::Device::cpu();
/// let (dq, dk) = (device.full([1, 1, 1, 2], 1.0f32)?, device.zeros([1, 0, 1, 2])?);
/// let (cos, sin) = (device.zeros([1, 1])?, device.full([1, 1], 1.0)?); // quarter turns
/// let (mut of_q, mut of_k) = (device.zeros([1, 1, 1, 2])?, device.zeros([1, 0, 1, 2])?);
/// let (operands, angles) = ([dq.view(), dk.view()], [cos.view(), sin.view()]);
/// rotary_backward(&device.default_stream(), operands, angles, [of_q.view_mut(), of_k.view_mut()], Pairs::Halves)?;
/// assert_eq!(of_q.to_vec()?, [1.0, -1.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`rotary`].
#[track_caller]
pub fn rotary_backward<T: Number>(
    stream: &Stream,
    [dq, dk]: [DeviceView<T, 4>; 2],
    angles: [DeviceView<T, 2>; 2],
    [of_q, of_k]: [DeviceViewMut<T, 4>; 2],
    pairs: Pairs,
) -> ct::Result<()> {
    launch(stream, [Some((dq, of_q)), Some((dk, of_k))], angles, pairs, true)
}
