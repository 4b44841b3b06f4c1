"""What must be: exact expectations of softmax quantities, by closed form or quadrature, in two routes."""
