//! Kullback-Leibler divergence of two softmaxes, for distillation (Hinton, Vinyals and Dean, 2015),
//! with its gradient.
//!
//! With the softmaxes p of the teacher and q of the student, at a temperature τ, the loss of a row
//! is Σ p · (ln p - ln q). The gradient of the student's logits is (q - p) / τ. Both rows are in
//! registers, of one tile block or of the blocks of a cluster. Longer rows are read twice.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;
use crate::norms::rows::{Form, mode};

/// Arrays of the student and the teacher.
type Pair<T> = [Array<T, 4>; 2];

fn kernel<T: Number>(
    logits: Pair<T>,
    (loss, gradient): (ArrayMut<f32, 1>, Option<ArrayMut<T, 4>>),
    (inverse, factor): (Scalar<f32>, Scalar<f32>),
    form: Form,
) {
    let (rows, columns, n) = (form.here(), logits[0].extent(3), form.rows);
    let load = |at: [Scalar<i32>; 4]| {
        let padding = || LoadOptions::new().padding(Padding::NegInf);
        logits.map(|x| x.load_with(at, form.shape(), padding()).cast::<f32>() * inverse)
    };
    // Terms p · (t - s) are 0 where p is.
    let term = |weights: Tile<f32, 4>, [s, t]: [Tile<f32, 4>; 2], j| {
        rows.inside(ct::select(weights.gt(0.0), weights * (t - s), 0.0), j, columns)
    };
    let scale = factor * inverse;
    let store = |gradient: ArrayMut<T, 4>, at: [Scalar<i32>; 4], [q, p]: [Tile<f32, 4>; 2]| {
        gradient.store(at, ((q - p) * scale).cast::<T>());
    };
    let (max, sum, terms) = if form.by_chunks {
        // Adjacent columns share maxima and sums: threads exchange nothing before the end of the
        // row.
        let groups = form.groups::<T>();
        let all = |value: f32| ct::full::<f32, 4>([1, 1, groups[2], 1], value);
        let start = ([all(f32::MIN); 2], [all(0.0); 2], all(0.0));
        mode::<T, _>(|| {
            let steps = ..logits[0].num_tiles(3, form.shape());
            let (maxima, sums, terms) = ct::fold(steps, start, |(max, sum, terms), j| {
                let both = load(rows.chunk(j));
                let [s, t] = both.map(|x| x.reshape(groups));
                let above = [max[0].max(s.reduce_max(3)), max[1].max(t.reduce_max(3))];
                let [q, p] = [(s - above[0]).exp(), (t - above[1]).exp()];
                let fade = [(max[0] - above[0]).exp(), (max[1] - above[1]).exp()];
                let sum = [sum[0].fma(fade[0], q.sum(3)), sum[1].fma(fade[1], p.sum(3))];
                let more = term(p.reshape(form.shape()), both, j).reshape(groups).sum(3);
                (above, sum, terms.fma(fade[1], more))
            });
            let max = maxima.map(|max| max.reduce_max(2));
            let fade = [(maxima[0] - max[0]).exp(), (maxima[1] - max[1]).exp()];
            (max, [(sums[0] * fade[0]).sum(2), (sums[1] * fade[1]).sum(2)], (terms * fade[1]).sum(2))
        })
    } else {
        let [s, t] = load(rows.at());
        let max = [rows.max(s), rows.max(t)];
        let [q, p] = mode::<T, _>(|| [(s - max[0]).exp(), (t - max[1]).exp()]);
        let sum = [rows.sum(q), rows.sum(p)];
        if let Some(gradient) = gradient {
            store(gradient, rows.at(), [q * (1.0 / sum[0]), p * (1.0 / sum[1])]);
        }
        // Differences from the maxima have fewer digits to lose.
        (max, sum, rows.sum(term(p, [s - max[0], t - max[1]], rows.part())))
    };
    let value = terms / sum[1] + (sum[0].log() - sum[1].log());
    let value = if form.by_chunks { value + (max[0] - max[1]) } else { value };
    loss.store(rows.row, value.reshape([n]));
    if let (true, Some(gradient)) = (form.by_chunks, gradient) {
        let logs = [max[0] + sum[0].log(), max[1] + sum[1].log()];
        ct::for_each(..logits[0].num_tiles(3, form.shape()), |j| {
            let [s, t] = load(rows.chunk(j));
            store(gradient, rows.chunk(j), mode::<T, _>(|| [(s - logs[0]).exp(), (t - logs[1]).exp()]));
        });
    }
}

/// Queues the divergences of the rows of two arrays of logits of shape (rows, columns), of the
/// student and the teacher. Also queues the gradients of the student's logits: those of the sum of
/// the losses times `factor`.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::losses::divergence;
///
/// let device = ct::Device::cpu();
/// let (student, teacher) = (device.full([1, 2], 3.0f32)?, device.array(&[100.0f32, 0.0], [1, 2])?);
/// let (mut loss, mut gradient) = (device.zeros([1])?, device.zeros([1, 2])?);
/// let (stream, results) = (device.default_stream(), (loss.view_mut(), Some(gradient.view_mut())));
/// divergence(&stream, [student.view(), teacher.view()], 1.0, 1.0, results)?;
/// assert!((loss.to_vec()?[0] - std::f32::consts::LN_2).abs() < 1e-6);
/// assert_eq!(gradient.to_vec()?, [-0.5, 0.5]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, or the temperature is not above 0; those of the
/// launch.
#[track_caller]
pub fn divergence<T: Number>(
    stream: &Stream,
    [student, teacher]: [DeviceView<T, 2>; 2],
    temperature: f32,
    factor: f32,
    (loss, gradient): (DeviceViewMut<f32, 1>, Option<DeviceViewMut<T, 2>>),
) -> ct::Result<()> {
    let [rows, columns] = student.shape();
    let of_gradient = gradient.as_ref().map_or([rows, columns], |gradient| gradient.shape());
    require(teacher.shape() == [rows, columns] && of_gradient == [rows, columns] && loss.len() == rows, || {
        let (teacher, losses) = (teacher.shape(), loss.len());
        format!("logits of {:?} and {teacher:?}, {losses} losses, gradient of {of_gradient:?}", [rows, columns])
    })?;
    require(temperature > 0.0, || format!("temperature {temperature}"))?;
    require(rows == 0 || columns > 0, || "logits without columns".to_owned())?;
    if rows == 0 {
        return Ok(());
    }
    let shape = [1, 1, rows, columns];
    let form = Form::new(shape, 4096, stream).sized::<T>(shape);
    let gradient = gradient.map(|gradient| gradient.reshape(shape)).transpose()?;
    let logits = [student.reshape(shape)?, teacher.reshape(shape)?];
    let arguments = (logits, (loss, gradient), (1.0 / temperature, factor), ct::Constant(form));
    form.launch(shape, stream).run(kernel::<T>, arguments)
}
