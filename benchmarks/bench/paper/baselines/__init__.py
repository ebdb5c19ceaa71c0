"""The partitions that the paper compares with: k-means, graph cuts, hashes, trees and networks."""
