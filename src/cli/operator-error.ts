/** A mistake that the operator can mend. The command line prints its message alone and exits with 1. */
export class OperatorError extends Error {
  override readonly name = 'OperatorError';
}
