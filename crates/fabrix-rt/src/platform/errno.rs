//! Error numbers of the kernel, for the results of completions, and open flags for disks.

pub use libc::{
    EACCES, EAGAIN, EBADF, EBUSY, ECANCELED, ECONNABORTED, EDQUOT, EFAULT, EFBIG, EINTR, EINVAL,
    EIO, ENODEV, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTCONN, ENXIO, EOPNOTSUPP, EPERM, EPROTO, EROFS,
    ESHUTDOWN, O_DIRECT, O_EXCL, O_PATH,
};
