//! Losses of policies: group relative policy optimization (GRPO; Shao et al., 2024) and direct
//! preference optimization (DPO; Rafailov et al., 2023).
//!
//! Both begin and end with [`CrossEntropy`]: its losses are the negated logarithms of the
//! probabilities of tokens, and its backward pass turns gradients of these losses into gradients of
//! logits.
//!
//! [`CrossEntropy`]: super::CrossEntropy

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::check::require;
use crate::launch::Run;

/// Tokens of a block.
const TOKENS: usize = 1024;

/// Loss of GRPO for each token, with the clipped ratio of probabilities of PPO.
///
/// Operands are the logarithm l of the probability of a token, l₀ of the sampling policy, l' of the
/// reference, and the advantage A. With r = exp(l - l₀), the loss is -min(r A, clamp(r, 1 - low,
/// 1 + high) A) + β (exp(l' - l) - (l' - l) - 1).
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::losses::Grpo;
///
/// let device = ct::Device::cpu();
/// let (entropies, old) = (device.full([2], 1.0f32)?, device.full([2], -1.0)?); // a ratio of 1
/// let advantages = device.array(&[2.0, -3.0], [2])?;
/// let (mut loss, mut gradient) = (device.zeros([2])?, device.zeros([2])?);
/// let (stream, results) = (device.default_stream(), (loss.view_mut(), gradient.view_mut()));
/// let grpo = Grpo { low: 0.2, high: 0.2, beta: 0.0 };
/// grpo.launch(&stream, entropies.view(), (old.view(), None, advantages.view()), 1.0, results)?;
/// assert_eq!((loss.to_vec()?, gradient.to_vec()?), (vec![-2.0, 3.0], vec![2.0, -3.0]));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Grpo {
    /// Bound of the ratio below 1.
    pub low: f32,
    /// Bound of the ratio above 1.
    pub high: f32,
    /// Factor β of the divergence from the reference.
    pub beta: f32,
}

/// Entropies, logarithms of the sampling policy and of the reference, and advantages.
type GrpoInputs = (Array<f32, 1>, Array<f32, 1>, Option<Array<f32, 1>>, Array<f32, 1>);

fn grpo(
    (entropies, old, reference, advantages): GrpoInputs,
    (loss, gradient): (ArrayMut<f32, 1>, ArrayMut<f32, 1>),
    (low, high, beta, factor): (Scalar<f32>, Scalar<f32>, Scalar<f32>, Scalar<f32>),
) {
    let i = ct::bid(0);
    let [entropy, old, advantage] = [entropies, old, advantages].map(|x| x.load(i, [TOKENS]));
    let ratio = (-entropy - old).exp();
    let free = ratio * advantage;
    let bound = ct::full::<f32, 1>([TOKENS], 1.0);
    let bounded = ratio.max(bound - low).min(bound + high) * advantage;
    // The gradient of the entropy, which is -l.
    let value = -free.min(bounded);
    let slope = ct::select(free.le(bounded), free, 0.0);
    let (value, slope) = match reference {
        Some(reference) => {
            let above = reference.load(i, [TOKENS]) + entropy;
            let power = above.exp();
            (value + (power - above - 1.0) * beta, slope + (power - 1.0) * beta)
        }
        None => (value, slope),
    };
    loss.store(i, value);
    gradient.store(i, slope * factor);
}

impl Grpo {
    /// Queues the losses of tokens and their gradients, times `factor`, for the entropies of the
    /// tokens. Arrays have an element for each token; entropies are the losses of a cross-entropy
    /// without smoothing. Inputs are the logarithms of the probabilities under the sampling policy
    /// and, if there is one, under the reference, and the advantages.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if lengths differ; those of the launch.
    #[track_caller]
    pub fn launch(
        self,
        stream: &Stream,
        entropies: DeviceView<f32, 1>,
        (old, reference, advantages): (DeviceView<f32, 1>, Option<DeviceView<f32, 1>>, DeviceView<f32, 1>),
        factor: f32,
        (loss, gradient): (DeviceViewMut<f32, 1>, DeviceViewMut<f32, 1>),
    ) -> ct::Result<()> {
        let tokens = entropies.len();
        let of_reference = reference.map_or(tokens, |reference| reference.len());
        let lengths = [old.len(), of_reference, advantages.len(), loss.len(), gradient.len()];
        require(lengths == [tokens; 5], || format!("{tokens} entropies, and arrays of {lengths:?} elements"))?;
        if tokens == 0 {
            return Ok(());
        }
        let numbers = (self.low, self.high, self.beta, factor);
        let arguments = ((entropies, old, reference, advantages), (loss, gradient), numbers);
        ct::Launch::new(tokens.div_ceil(TOKENS)).stream(stream).run(grpo, arguments)
    }
}

/// Loss of DPO: -ln σ(β ((c - c') - (r - r'))) for the logarithms c and r of the probabilities of a
/// chosen and a rejected sequence, and c' and r' under the reference.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::losses::Dpo;
///
/// let device = ct::Device::cpu();
/// let (entropies, reference) = (device.full([1, 2, 3], 1.0f32)?, device.full([1, 2], -3.0)?);
/// let (mut loss, mut gradient) = (device.zeros([1])?, device.zeros([1, 2, 3])?);
/// let (stream, results) = (device.default_stream(), (loss.view_mut(), gradient.view_mut()));
/// Dpo { beta: 0.5 }.launch(&stream, entropies.view(), reference.view(), 1.0, results)?;
/// assert!((loss.to_vec()?[0] - std::f32::consts::LN_2).abs() < 1e-6);
/// assert_eq!(gradient.to_vec()?, [0.25, 0.25, 0.25, -0.25, -0.25, -0.25]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dpo {
    /// Factor β of the difference.
    pub beta: f32,
}

/// A block has a pair of sequences.
fn dpo(
    entropies: Array<f32, 3>,
    reference: Array<f32, 2>,
    (loss, gradient): (ArrayMut<f32, 1>, ArrayMut<f32, 3>),
    (beta, factor): (Scalar<f32>, Scalar<f32>),
) {
    ct::require_rowwise(0);
    let (pair, shape) = (ct::bid(0), [1, 2, TOKENS]);
    let chunks = || ..entropies.num_tiles(2, shape);
    let sums = ct::fold(chunks(), ct::zeros::<f32, 3>(shape), |sum, j| sum + entropies.load((pair, 0, j), shape));
    let above = -sums.sum(2).reshape([1, 2]) - reference.load((pair, 0), [1, 2]);
    let [chosen, rejected] = above.unstack(1);
    let margin = (chosen - rejected) * beta;
    loss.store(pair, (-margin).softplus());
    let slope = ((-margin).sigmoid() * beta * factor).reshape([1, 1, 1]);
    let signs = ct::cat([ct::full::<f32, 3>([1, 1, 1], 1.0), ct::full([1, 1, 1], -1.0)], 1);
    let slopes = (signs * slope).broadcast_to(shape);
    ct::for_each(chunks(), |j| gradient.store((pair, 0, j), slopes));
}

impl Dpo {
    /// Queues the losses of pairs and the gradients of the entropies of their tokens, times
    /// `factor`. Entropies have the shape (pairs, 2, tokens), the chosen sequence first, with 0 for
    /// tokens that do not count. `reference` are the sums of the logarithms of the reference, of
    /// shape (pairs, 2).
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
    #[track_caller]
    pub fn launch(
        self,
        stream: &Stream,
        entropies: DeviceView<f32, 3>,
        reference: DeviceView<f32, 2>,
        factor: f32,
        (loss, gradient): (DeviceViewMut<f32, 1>, DeviceViewMut<f32, 3>),
    ) -> ct::Result<()> {
        let [pairs, two, tokens] = entropies.shape();
        let fits = two == 2 && reference.shape() == [pairs, 2] && loss.len() == pairs;
        require(fits && gradient.shape() == [pairs, two, tokens], || {
            let (reference, gradient) = (reference.shape(), gradient.shape());
            format!("entropies of {:?}, reference of {reference:?}, gradient of {gradient:?}", entropies.shape())
        })?;
        if pairs == 0 {
            return Ok(());
        }
        let arguments = (entropies, reference, (loss, gradient), (self.beta, factor));
        ct::Launch::new(pairs).stream(stream).run(dpo, arguments)
    }
}
