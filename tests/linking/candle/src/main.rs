fn main() -> cutlet::Result<()> {
    println!("{} GPUs", cutlet::Device::num_gpus());
    Ok(())
}
