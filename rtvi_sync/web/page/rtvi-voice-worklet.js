// The page's part is not here yet.
