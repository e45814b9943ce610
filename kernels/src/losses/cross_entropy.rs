//! Cross-entropy of logits and labels, with label smoothing, an ignored label and z-loss, and its
//! gradient.
//!
//! With the logarithm l of the sum of exponentials of a row of n logits x, the label y and the
//! smoothing s:
//!
//! * The loss is l - (1 - s) · x[y] - s · mean(x) + z · l².
//! * The gradient is p · (1 + 2 z l) - s / n - (1 - s) · [j = y], with the softmax p.
//!
//! Loss and gradient are computed in one pass: the row is in registers, of one tile block or of the
//! blocks of a cluster. Longer rows are read twice, with an online sum (Milakov and Gimelshein,
//! 2018).

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;
use crate::norms::rows::Form;
use crate::norms::rows::mode;
use crate::norms::softmax::{load, online};

/// Cross-entropy of each row of logits. Rows with a label outside of the columns have loss and
/// gradient 0.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::losses::CrossEntropy;
///
/// let device = ct::Device::cpu();
/// let logits = device.array(&[0.0f32, 0.0, 0.0, 0.0], [2, 2])?;
/// let labels = device.array(&[1, -100], [2])?;
/// let (mut loss, mut gradient) = (device.zeros([2])?, device.zeros([2, 2])?);
/// let (stream, results) = (device.default_stream(), (loss.view_mut(), gradient.view_mut()));
/// CrossEntropy::new().with_gradient(&stream, logits.view(), labels.view(), 1.0, results)?;
/// assert!((loss.to_vec()?[0] - std::f32::consts::LN_2).abs() < 1e-6 && loss.to_vec()?[1] == 0.0);
/// assert_eq!(gradient.to_vec()?, [0.5, -0.5, 0.0, 0.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropy {
    /// Part of the label's weight that all columns share, from 0 to 1.
    pub label_smoothing: f32,
    /// Factor of the squared logarithm of the sum of exponentials.
    pub z_loss: f32,
    /// Label of rows that have loss and gradient 0.
    pub ignored: Option<i32>,
}

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Constants {
    form: Form,
    smoothed: bool,
}

/// Numbers of the loss: smoothing, factor of the z-loss, ignored label, and factor of the gradient.
type Numbers = (Scalar<f32>, Scalar<f32>, Scalar<i32>, Scalar<f32>);

/// Gradient of the logits, and that of the loss of each row.
type Gradient<T> = (ArrayMut<T, 4>, Option<Array<f32, 1>>);

fn kernel<T: Number>(
    (x, labels): (Array<T, 4>, Array<i32, 1>),
    loss: Option<ArrayMut<f32, 1>>,
    gradient: Option<Gradient<T>>,
    (smoothing, z, ignored, factor): Numbers,
    Constants { form, smoothed }: Constants,
) {
    let (rows, columns, n) = (form.here(), x.extent(3), form.rows);
    let tile = (!form.by_chunks).then(|| load(x, rows.at(), form, form.padded));
    let (max, sum, total, powers) = match tile {
        Some(x) => {
            let max = rows.max(x);
            let powers = mode::<T, _>(|| (x - max).exp());
            let total = if smoothed { rows.sum(rows.inside(x, rows.part(), columns)) } else { max };
            (max, rows.sum(powers), total, Some(powers))
        }
        None => mode::<T, _>(|| {
            let load = |j: Scalar<i32>, padded| load(x, rows.chunk(j), form, padded);
            let (max, sum) = online::<T>(rows, columns, form, load);
            let add = |sum: Tile<f32, 4>, j, padded: bool| {
                let x = load(j, padded);
                sum + if padded { rows.inside(x, j, columns) } else { x }
            };
            let total = match smoothed {
                true => rows.fold(columns, ct::zeros::<f32, 4>(form.shape()), add).sum(3),
                false => max,
            };
            (max, sum, total, None)
        }),
    };
    let log = max + sum.log();
    let label = labels.load(rows.row, [n]);
    let counted = label.ge(0) & label.lt(columns) & label.ne(ignored);
    if let Some(loss) = loss {
        let row = rows.row * n + ct::arange(0..n);
        let hit = x.gather((0, 0, row, label)).cast::<f32>();
        let log = log.reshape([n]);
        let value = log + log * log * z - hit * (1.0 - smoothing);
        let value = match smoothed {
            true => value - total.reshape([n]) * (smoothing / columns.cast::<f32>()),
            false => value,
        };
        loss.store(rows.row, ct::select(counted, value, 0.0));
    }
    let Some((gradient, dloss)) = gradient else { return };
    let scale = dloss.map_or(ct::full([n], factor), |dloss| dloss.load(rows.row, [n]) * factor);
    let scale = ct::select(counted, scale, 0.0).reshape([1, 1, n, 1]);
    let of_softmax = scale * (log * z * 2.0 + 1.0) * (1.0 / sum);
    let (level, of_label) = (scale * (smoothing / columns.cast::<f32>()), scale * (1.0 - smoothing));
    let label = label.reshape([1, 1, n, 1]);
    let result = |powers: Tile<f32, 4>, j: Scalar<i32>| {
        let column = (j * form.tile + ct::arange(0..form.tile)).reshape([1, 1, 1, form.tile]);
        let result = powers * of_softmax;
        let result = if smoothed { result - level } else { result };
        (result - ct::select(column.eq(label), of_label, 0.0)).cast::<T>()
    };
    match powers {
        Some(powers) => gradient.store(rows.at(), result(powers, rows.part())),
        None => rows.each_back(columns, |j, padded| {
            let powers = mode::<T, _>(|| (load(x, rows.chunk(j), form, padded) - max).exp());
            gradient.store(rows.chunk(j), result(powers, j));
        }),
    }
}

/// Results of a launch.
struct Results<'a, T> {
    loss: Option<DeviceViewMut<'a, f32, 1>>,
    gradient: Option<DeviceViewMut<'a, T, 2>>,
    dloss: Option<DeviceView<'a, f32, 1>>,
    factor: f32,
}

impl CrossEntropy {
    /// Neither smoothing nor z-loss, and no ignored label.
    pub fn new() -> CrossEntropy {
        CrossEntropy::default()
    }

    #[track_caller]
    fn launch<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 2>,
        labels: DeviceView<i32, 1>,
        Results { loss, gradient, dloss, factor }: Results<T>,
    ) -> ct::Result<()> {
        let [rows, columns] = logits.shape();
        let lengths = [labels.len(), loss.as_ref().map_or(rows, |x| x.len()), dloss.map_or(rows, |x| x.len())];
        require(lengths == [rows; 3], || format!("{rows} rows of logits; labels, loss and gradient of {lengths:?}"))?;
        require(gradient.as_ref().is_none_or(|x| x.shape() == [rows, columns]), || {
            format!("logits of {:?} and gradient of {:?}", [rows, columns], gradient.as_ref().map(|x| x.shape()))
        })?;
        require(rows == 0 || columns > 0, || "logits without columns".to_owned())?;
        if rows == 0 {
            return Ok(());
        }
        let shape = [1, 1, rows, columns];
        let elements = if size_of::<T>() == 2 { 4096 } else { 8192 };
        let form = Form::of_bytes(shape, elements, size_of::<T>(), stream).sized::<T>(shape);
        let constants = Constants { form, smoothed: self.label_smoothing != 0.0 };
        let gradient = match gradient {
            Some(gradient) => Some((gradient.reshape(shape)?, dloss)),
            None => None,
        };
        let numbers = (self.label_smoothing, self.z_loss, self.ignored.unwrap_or(-1), factor);
        let arguments = ((logits.reshape(shape)?, labels), loss, gradient, numbers, ct::Constant(constants));
        form.launch(shape, stream).run(kernel::<T>, arguments)
    }

    /// Queues the losses of the rows of logits of shape (rows, columns), with a label for each row.
    /// Rows have any length.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
    #[track_caller]
    pub fn forward<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 2>,
        labels: DeviceView<i32, 1>,
        loss: DeviceViewMut<f32, 1>,
    ) -> ct::Result<()> {
        self.launch(stream, logits, labels, Results { loss: Some(loss), gradient: None, dloss: None, factor: 1.0 })
    }

    /// Queues the losses, and the gradients of their sum times `factor`: one over the number of
    /// rows for the mean.
    ///
    /// # Errors
    /// Those of [`CrossEntropy::forward`].
    #[track_caller]
    pub fn with_gradient<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 2>,
        labels: DeviceView<i32, 1>,
        factor: f32,
        (loss, gradient): (DeviceViewMut<f32, 1>, DeviceViewMut<T, 2>),
    ) -> ct::Result<()> {
        let results = Results { loss: Some(loss), gradient: Some(gradient), dloss: None, factor };
        self.launch(stream, logits, labels, results)
    }

    /// Queues the gradient of the logits from that of the loss of each row.
    ///
    /// # Errors
    /// Those of [`CrossEntropy::forward`].
    #[track_caller]
    pub fn backward<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 2>,
        labels: DeviceView<i32, 1>,
        dloss: DeviceView<f32, 1>,
        gradient: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let results = Results { loss: None, gradient: Some(gradient), dloss: Some(dloss), factor: 1.0 };
        self.launch(stream, logits, labels, results)
    }
}
