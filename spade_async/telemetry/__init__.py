"""What a run tells: metrics, TensorBoard, status, logs and the sentence about its limit."""
