//! Loss of group-relative policy optimization (Shao et al., 2024) and its gradient.
//!
//! Operands are log-probabilities l of the chosen tokens at a temperature, o of the old policy and
//! r of a reference, and the advantage a of a sequence. With the ratio e = exp(l - o), the loss of
//! a token is -min(min(e, δ) · a, clamp(e, 1 - ε₁, 1 + ε₂) · a) + β (exp(r - l) - (r - l) - 1). The
//! bound δ is that of dual clipping (Ye et al., 2020). The gradient of a logit is dl/dx[j] = ([j =
//! token] - p[j]) / temperature.
//!
//! Forward, a tile block reads a row of logits once, in one tile or by chunks with an online sum
//! (Milakov and Gimelshein, 2018). Backward, a block has a part of a row: the logarithms of the
//! sums of exponentials are saved.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;
use crate::norms::rows::{Form, mode};

/// Adjacent columns that share a maximum.
const GROUP: usize = 8;
/// Columns of a block of the gradient.
const COLUMNS: usize = 4096;

/// Loss of group-relative policy optimization from logits, in one kernel. [`Grpo`] computes it from
/// the entropies of tokens.
///
/// [`Grpo`]: super::Grpo
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::losses::{FusedGrpo, Policy};
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let logits = device.zeros::<f32, 3>([1, 3, 4])?; // two tokens of four; the last row has no token
/// let (tokens, advantages) = (device.array(&[0, 3], [1, 2])?, device.array(&[0.5f32], [1])?);
/// let policy = Policy { tokens: tokens.view(), advantages: advantages.view(), old: None, reference: None, mask: None };
/// let (mut loss, mut logs) = (device.zeros([1, 2])?, device.zeros([1, 2])?);
/// FusedGrpo::new().forward(&stream, logits.view(), policy, (loss.view_mut(), logs.view_mut()))?;
/// assert_eq!(loss.to_vec()?, [-0.5, -0.5]); // equal policies: minus the advantage
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FusedGrpo {
    /// Divisor of the logits, above 0.
    pub temperature: f32,
    /// Factor of the divergence from the reference.
    pub beta: f32,
    /// Distances from 1 below and above which the ratio is clipped.
    pub clip: [f32; 2],
    /// Upper bound of the ratio.
    pub bound: Option<f32>,
}

/// Tokens of sequences with their policies. Matrices are of shape (batch, tokens).
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// Chosen tokens.
    pub tokens: DeviceView<'a, i32, 2>,
    /// Advantage of each sequence.
    pub advantages: DeviceView<'a, f32, 1>,
    /// Log-probabilities of the old policy; none: those of the logits.
    pub old: Option<DeviceView<'a, f32, 2>>,
    /// Log-probabilities of the reference; none: without divergence.
    pub reference: Option<DeviceView<'a, f32, 2>>,
    /// Tokens with 0 have loss and gradient 0.
    pub mask: Option<DeviceView<'a, i32, 2>>,
}

/// Arrays of a policy in a kernel: tokens, advantages, old policy, reference, mask.
type Arrays = (Array<i32, 2>, Array<f32, 1>, Option<Array<f32, 2>>, Option<Array<f32, 2>>, Option<Array<i32, 2>>);
/// One over the temperature, β, bounds of the clipped ratio, and the bound of the ratio.
type Numbers = (Scalar<f32>, Scalar<f32>, [Scalar<f32>; 2], Scalar<f32>);

/// Returns the loss of a token of log-probability `log`, and its derivative.
fn loss(
    log: Scalar<f32>,
    (_, advantages, old, reference, _): Arrays,
    at: [Scalar<i32>; 2],
    (_, beta, [low, high], bound): Numbers,
) -> [Scalar<f32>; 2] {
    let advantage = advantages.load_scalar(at[0]);
    let ratio = old.map_or(ct::scalar(1.0), |old| (log - old.load_scalar(at)).exp());
    let (free, clipped) = (ratio.min(bound) * advantage, ratio.max(low).min(high) * advantage);
    let flows = clipped.ge(free) & ratio.le(bound);
    let (value, slope) = (-free.min(clipped), flows.select(-ratio * advantage, 0.0));
    reference.map_or([value, slope], |reference| {
        let apart = reference.load_scalar(at) - log;
        [value + beta * (apart.exp() - apart - 1.0), slope + beta * (1.0 - apart.exp())]
    })
}

fn forward<T: Number>(
    x: Array<T, 4>,
    policy: Arrays,
    (result, logs): (ArrayMut<f32, 2>, ArrayMut<f32, 2>),
    numbers: Numbers,
    form: Form,
) {
    let (rows, factor) = (form.here(), numbers.0);
    let at = [ct::bid(1), rows.row];
    let load = |at| x.load_with(at, form.shape(), LoadOptions::new().padding(Padding::NegInf)).cast::<f32>() * factor;
    let (max, sum) = if form.by_chunks {
        // Groups of adjacent columns have a maximum and a sum: threads exchange nothing before the
        // end of the row.
        let groups = form.tile / GROUP;
        let start = (ct::full([groups, 1], f32::MIN), ct::zeros([groups, 1]));
        let (maxima, sums) =
            ct::fold(..x.num_tiles(3, form.shape()), start, |(max, sums): (Tile<f32, 2>, Tile<f32, 2>), j| {
                let x = load(rows.chunk(j)).reshape([groups, GROUP]);
                let above = max.max(x.reduce_max(1));
                mode::<T, _>(|| (above, sums.fma((max - above).exp(), (x - above).exp().sum(1))))
            });
        let max = maxima.reduce_max(0);
        let sum = (sums * (maxima - max).exp()).sum(0);
        (max.reshape([1; 4]), sum.reshape([1; 4]))
    } else {
        let x = load(rows.at());
        let max = rows.max(x);
        (max, rows.sum(mode::<T, _>(|| (x - max).exp())))
    };
    let log = (max + sum.log()).item();
    let token = policy.0.load_scalar(at);
    let chosen = x.load_scalar((0, at[0], at[1], token)).cast::<f32>() * factor;
    let [value, _] = loss(chosen - log, policy, at, numbers);
    let counted = policy.4.map_or(ct::scalar(true), |mask| mask.load_scalar(at).ne(0));
    result.store_scalar(at, counted.select(value, 0.0));
    logs.store_scalar(at, log);
}

fn backward<T: Number>(
    x: Array<T, 3>,
    policy: Arrays,
    (logs, dloss): (Array<f32, 2>, Array<f32, 2>),
    dx: ArrayMut<T, 3>,
    numbers: Numbers,
) {
    let (part, at) = (ct::bid(0), [ct::bid(2), ct::bid(1)]);
    let (place, shape) = ((at[0], at[1], part), [1, 1, COLUMNS]);
    let (token, log) = (policy.0.load_scalar(at), logs.load_scalar(at));
    let chosen = x.load_scalar((at[0], at[1], token)).cast::<f32>() * numbers.0;
    let [_, slope] = loss(chosen - log, policy, at, numbers);
    // The row after the last token has no loss.
    let counted = policy.4.map_or(ct::scalar(true), |mask| mask.load_scalar(at).ne(0)) & at[1].lt(logs.extent(1));
    let scale = counted.select(slope * dloss.load_scalar(at) * numbers.0, 0.0);
    let column = (part * COLUMNS + ct::arange(0..COLUMNS)).reshape(shape);
    let share = mode::<T, _>(|| (x.load(place, shape).cast::<f32>() * numbers.0 - log).exp());
    let result = (column.eq(token).cast::<f32>() - share) * scale;
    // Logits without a loss may be infinite.
    dx.store(place, ct::select(counted, result, 0.0).cast::<T>());
}

impl Default for FusedGrpo {
    fn default() -> FusedGrpo {
        FusedGrpo::new()
    }
}

impl FusedGrpo {
    /// Ratios are clipped at 0.8 and 1.2, the factor of the divergence is 0.04, and the temperature
    /// is 1.
    #[must_use]
    pub fn new() -> FusedGrpo {
        FusedGrpo { temperature: 1.0, beta: 0.04, clip: [0.2, 0.2], bound: None }
    }

    #[allow(clippy::type_complexity, reason = "the arguments of a kernel")]
    fn numbers(&self) -> (f32, f32, [f32; 2], f32) {
        let [below, above] = self.clip;
        (1.0 / self.temperature, self.beta, [1.0 - below, 1.0 + above], self.bound.unwrap_or(f32::INFINITY))
    }

    #[track_caller]
    fn check(&self, logits: [usize; 3], policy: &Policy, others: [[usize; 2]; 2]) -> ct::Result<()> {
        let [batch, tokens] = policy.tokens.shape();
        require(self.temperature > 0.0, || format!("a temperature of {}: a number above 0", self.temperature))?;
        require(logits[..2] == [batch, tokens + 1] && logits[2] > 0, || {
            format!("logits of {logits:?} for tokens of {:?}: one row more than tokens", [batch, tokens])
        })?;
        let optional = [policy.old, policy.reference].map(|of| of.map_or([batch, tokens], |of| of.shape()));
        let mask = policy.mask.map_or([batch, tokens], |of| of.shape());
        require([optional[0], optional[1], mask, others[0], others[1]] == [[batch, tokens]; 5], || {
            format!("arrays of {optional:?}, {mask:?} and {others:?} for tokens of {:?}", [batch, tokens])
        })?;
        require(policy.advantages.len() == batch, || {
            format!("{} advantages for {batch} sequences", policy.advantages.len())
        })
    }

    /// Queues the loss of each token, and the logarithms of the sums of exponentials, which
    /// [`FusedGrpo::backward`] needs. Logits are of shape (batch, tokens + 1, columns): their last
    /// row has no token.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
    #[track_caller]
    pub fn forward<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 3>,
        policy: Policy,
        (loss, logs): (DeviceViewMut<f32, 2>, DeviceViewMut<f32, 2>),
    ) -> ct::Result<()> {
        self.check(logits.shape(), &policy, [loss.shape(), logs.shape()])?;
        let [batch, tokens] = policy.tokens.shape();
        if batch * tokens == 0 {
            return Ok(());
        }
        let shape = [1, batch, tokens, logits.shape()[2]];
        let form = Form { rows: 1, ..Form::new(shape, 1, stream) };
        let Policy { tokens: of, advantages, old, reference, mask } = policy;
        let logits = logits.slice(1, 0..tokens)?.reshape(shape)?;
        let arguments =
            (logits, (of, advantages, old, reference, mask), (loss, logs), self.numbers(), ct::Constant(form));
        form.launch(shape, stream).run(forward::<T>, arguments)
    }

    /// Queues the gradient of the logits from that of the loss of each token. `logs` are those of
    /// [`FusedGrpo::forward`].
    ///
    /// # Errors
    /// Those of [`FusedGrpo::forward`].
    #[track_caller]
    pub fn backward<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 3>,
        policy: Policy,
        (logs, dloss): (DeviceView<f32, 2>, DeviceView<f32, 2>),
        dlogits: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        let [batch, rows, columns] = logits.shape();
        self.check(logits.shape(), &policy, [logs.shape(), dloss.shape()])?;
        require(dlogits.shape() == logits.shape(), || {
            format!("logits of {:?} and gradient of {:?}", logits.shape(), dlogits.shape())
        })?;
        if batch * rows == 0 {
            return Ok(());
        }
        let Policy { tokens, advantages, old, reference, mask } = policy;
        let policy = (tokens, advantages, old, reference, mask);
        let arguments = (logits, policy, (logs, dloss), dlogits, self.numbers());
        ct::Launch::new([columns.div_ceil(COLUMNS), rows, batch]).stream(stream).run(backward::<T>, arguments)
    }
}
