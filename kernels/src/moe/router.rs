//! Router of a mixture of experts: the experts of each token and their weights, with the gradient
//! of the logits.
//!
//! Scores are the softmax of the logits (Shazeer et al., 2017), or their sigmoids (DeepSeek-V3,
//! 2024), whose choice a bias of each expert may change. All experts of some tokens are in one
//! tile.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Scores of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scores {
    /// Softmax of the logits of a token.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
}

/// Choice of the experts with the largest scores, of equal ones the first.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::{Router, Scores};
///
/// let device = ct::Device::cpu();
/// let logits = device.array(&[1.0f32, 3.0, 3.0, 2.0], [1, 4])?;
/// let (mut experts, mut weights) = (device.zeros([1, 2])?, device.zeros([1, 2])?);
/// let router = Router { scores: Scores::Softmax, normalised: true, scale: 1.0 };
/// let results = (experts.view_mut(), weights.view_mut());
/// router.launch(&device.default_stream(), logits.view(), None, results)?;
/// assert_eq!((experts.to_vec()?, weights.to_vec()?), (vec![1, 2], vec![0.5, 0.5]));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Router {
    /// Scores.
    pub scores: Scores,
    /// Weights are divided by their sum for each token.
    pub normalised: bool,
    /// Factor of the weights.
    pub scale: f32,
}

/// Constants of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    scores: Scores,
    normalised: bool,
    /// Experts of a token.
    taken: usize,
    /// Tokens and experts of a tile.
    tile: [usize; 2],
}

/// Scores of all experts; 0 after the last one.
fn scores<T: Number>(logits: Array<T, 2>, form: Form) -> Tile<f32, 2> {
    let padding = LoadOptions::new().padding(Padding::NegInf);
    let logits = logits.load_with((ct::bid(0), 0), form.tile, padding).cast::<f32>();
    match form.scores {
        Scores::Softmax => logits.softmax(1),
        Scores::Sigmoid => logits.sigmoid(),
    }
}

fn forward<T: Number>(
    logits: Array<T, 2>,
    bias: Option<Array<f32, 1>>,
    (experts, weights): (ArrayMut<i32, 2>, ArrayMut<f32, 2>),
    scale: Scalar<f32>,
    form: Form,
) {
    let promise = ct::require_rowwise(0);
    let _ = bias.map(|bias| promise.constant(bias));
    let (at, width) = ((ct::bid(0), 0), form.tile[1]);
    let scores = scores(logits, form);
    let keys = bias.map_or(scores, |bias| scores + bias.load(0, [width]).unsqueeze(0));
    let inside = ct::arange(0..width).lt(logits.extent(1)).unsqueeze(0);
    let slots = form.taken.next_power_of_two();
    let (_, chosen) = ct::select(inside, keys, f32::NEG_INFINITY).top_k(1, slots);
    let of_slots = ct::arange(0..slots).lt(form.taken as i32).unsqueeze(0);
    let of_chosen = ct::select(of_slots, scores.gather(1, chosen), 0.0);
    let result = if form.normalised { of_chosen / of_chosen.sum(1) } else { of_chosen };
    experts.store(at, chosen);
    weights.store(at, result * scale);
}

fn backward<T: Number>(
    logits: Array<T, 2>,
    (experts, dweights): (Array<i32, 2>, Array<f32, 2>),
    dlogits: ArrayMut<T, 2>,
    scale: Scalar<f32>,
    form: Form,
) {
    ct::require_rowwise(0);
    let ([tokens, width], slots) = (form.tile, form.taken.next_power_of_two());
    let scores = scores(logits, form);
    let chosen = experts.load((ct::bid(0), 0), [tokens, slots]);
    let dweights = dweights.load((ct::bid(0), 0), [tokens, slots]) * scale;
    let of_slots = ct::arange(0..slots).lt(form.taken as i32).unsqueeze(0);
    let of_chosen = ct::select(of_slots, scores.gather(1, chosen), 0.0);
    let of_scores = match form.normalised {
        true => {
            let sum = of_chosen.sum(1);
            (dweights - (dweights * of_chosen).sum(1) / sum) / sum
        }
        false => dweights,
    };
    // The experts of a token are distinct.
    let column = ct::arange(0..width).unsqueeze(0);
    let gradient = (0..form.taken).fold(ct::zeros::<f32, 2>(form.tile), |sum, slot| {
        let [expert, value] = [chosen.cast::<f32>(), of_scores].map(|tile| tile.extract((0, slot), [tokens, 1]));
        sum + ct::select(column.eq(expert.cast::<i32>()), value, 0.0)
    });
    let result = match form.scores {
        Scores::Softmax => scores * (gradient - (gradient * scores).sum(1)),
        Scores::Sigmoid => gradient * scores * (1.0 - scores),
    };
    dlogits.store((ct::bid(0), 0), result.cast::<T>());
}

/// Largest number of experts: those of a tile.
const MAX_EXPERTS: usize = 4096;

impl Router {
    #[track_caller]
    fn form(self, [tokens, experts]: [usize; 2], chosen: [usize; 2], weights: [usize; 2]) -> ct::Result<Form> {
        let taken = chosen[1];
        require(chosen == weights && chosen[0] == tokens && (1..=experts).contains(&taken), || {
            format!("logits of {:?}, chosen experts of {chosen:?}, weights of {weights:?}", [tokens, experts])
        })?;
        require(experts <= MAX_EXPERTS, || format!("{experts} experts; the largest number is {MAX_EXPERTS}"))?;
        let width = experts.next_power_of_two();
        let tile = [(2048 / width).clamp(1, 16), width];
        Ok(Form { scores: self.scores, normalised: self.normalised, taken, tile })
    }

    /// Queues the choice for logits of shape (tokens, experts): experts and weights of shape
    /// (tokens, chosen experts). `bias` is added to the scores for the choice alone.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit, or with more than 4096 experts; those of the
    /// launch.
    #[track_caller]
    pub fn launch<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 2>,
        bias: Option<DeviceView<f32, 1>>,
        (experts, weights): (DeviceViewMut<i32, 2>, DeviceViewMut<f32, 2>),
    ) -> ct::Result<()> {
        let [tokens, count] = logits.shape();
        let form = self.form([tokens, count], experts.shape(), weights.shape())?;
        require(bias.is_none_or(|bias| bias.len() == count), || {
            format!("{count} experts, and a bias of other length")
        })?;
        if tokens == 0 {
            return Ok(());
        }
        let arguments = (logits, bias, (experts, weights), self.scale, ct::Constant(form));
        ct::Launch::new(tokens.div_ceil(form.tile[0])).stream(stream).run(forward::<T>, arguments)
    }

    /// Queues the gradient of the logits from that of the weights.
    ///
    /// # Errors
    /// Those of [`Router::launch`].
    #[track_caller]
    pub fn backward<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 2>,
        (experts, dweights): (DeviceView<i32, 2>, DeviceView<f32, 2>),
        dlogits: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let form = self.form(logits.shape(), experts.shape(), dweights.shape())?;
        require(logits.shape() == dlogits.shape(), || {
            format!("logits of {:?}, and a gradient of {:?}", logits.shape(), dlogits.shape())
        })?;
        if logits.is_empty() {
            return Ok(());
        }
        let arguments = (logits, (experts, dweights), dlogits, self.scale, ct::Constant(form));
        ct::Launch::new(logits.shape()[0].div_ceil(form.tile[0])).stream(stream).run(backward::<T>, arguments)
    }
}
