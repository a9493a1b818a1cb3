//! The numbers of the kernel's errors and of the open flags that a disk needs, for those who read a
//! completion's result. Names and values only: nothing here calls the kernel.

pub use libc::{
    EACCES, EAGAIN, EBADF, EBUSY, ECANCELED, ECONNABORTED, EDQUOT, EFAULT, EFBIG, EINTR, EINVAL,
    EIO, ENODEV, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTCONN, ENXIO, EOPNOTSUPP, EPERM, EPROTO, EROFS,
    ESHUTDOWN, O_DIRECT, O_EXCL, O_PATH,
};
