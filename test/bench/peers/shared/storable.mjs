/**
 * SQLite cuts a text at NUL and replaces half a surrogate pair.
 *
 * @param {string} text
 */
export function isStorable(text) {
  return text.isWellFormed() && !text.includes('\0');
}
