/**
 * Counts in ids that have the form of a UUIDv7: 1 January 2026, the number of the series, and how many there were. The
 * same requests get the same ids, whatever the clock says.
 */
export function createRepeatableIds(series: number): () => string {
  const head = `019b76da-a800-7${series.toString(16).padStart(3, '0')}-8000`;
  let count = 0;
  return () => {
    count += 1;
    return `${head}-${count.toString(16).padStart(12, '0')}`;
  };
}
